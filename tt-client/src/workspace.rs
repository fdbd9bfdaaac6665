//! From where the caller stands to the room that belongs to it.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use jsonrpsee::core::ClientError;
use tt_proto::api::{EventApiClient, RoomApiClient};
use tt_proto::filter::OneOrMany;
use tt_proto::room::{Joined, ResolvedMember, RoomState, nobody_joined};
use tt_proto::{AgentId, Error, ErrorCode, RoomId};

use crate::connect::{Client, DEADLINE, Rpc, Wire};
use crate::output::{Format, Output, harmless};
use crate::text::names::{self, Names};
use crate::{Context, Failure};

// Which workspace a command is about. As a doc comment this would be taken for what the command does.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PathArg {
    /// The workspace: any path in it [default: the current directory]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// The same, as a flag
    #[arg(long = "path", value_name = "DIR", conflicts_with = "path")]
    dir: Option<PathBuf>,
}

// The same for commands whose other words leave no room for a path.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PathFlag {
    /// The workspace: any path in it [default: the current directory]
    #[arg(long = "path", value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl From<PathFlag> for PathArg {
    fn from(flag: PathFlag) -> Self {
        Self { path: None, dir: flag.dir }
    }
}

impl PathArg {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path: Some(path), dir: None }
    }

    /// The path as the daemon takes it: text, relative to the caller's working directory.
    pub(crate) fn text(&self) -> Result<String, Failure> {
        let path = self.path.as_ref().or(self.dir.as_ref()).cloned().unwrap_or_else(|| PathBuf::from("."));
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| {
            Failure::Refused(
                Error::new(ErrorCode::InvalidInput, format!("{} is not UTF-8", path.display()))
                    .hint("rename it, or name the workspace by a path that is"),
            )
        })
    }
}

/// A room, and the connection that speaks about it.
pub(crate) struct Workspace {
    pub client: Client,
    pub output: Output,
    pub room_id: RoomId,
    path: String,
}

/// More joins than this are not worth reading for the sake of names.
const NAMES: usize = 1000;

/// A fresh key for one write, so that repeating it after a lost connection changes nothing. The moment, the process and a
/// count make it the only one, without seeding a generator of random numbers in a program that makes one call.
pub(crate) fn key() -> Option<String> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let (now, count) = (UNIX_EPOCH.elapsed().unwrap_or_default(), MADE.fetch_add(1, Ordering::Relaxed));
    Some(format!("{:x}-{:x}-{count:x}", now.as_nanos(), std::process::id()))
}

impl Workspace {
    /// Reaches the daemon and finds the room of this path.
    pub(crate) async fn find(context: &Context, path: impl Into<PathArg>) -> Result<Self, Failure> {
        Self::reach(context, path.into(), Wire::Short).await
    }

    /// The same for a command that stays: it listens, and may be broken off in the middle of a call.
    pub(crate) async fn find_and_stay(context: &Context, path: impl Into<PathArg>) -> Result<Self, Failure> {
        Self::reach(context, path.into(), Wire::Long).await
    }

    /// The same with the first call, a member's, in the same breath: it does not wait to be told which room it is about.
    pub(crate) async fn find_and_call<T>(
        context: &Context,
        path: impl Into<PathArg>,
        call: impl AsyncFn(&Rpc, &RoomId) -> Result<T, ClientError>,
    ) -> Result<(Self, T), Failure> {
        let path = path.into().text()?;
        let here = RoomId::from(RoomId::HERE);
        let first = async |rpc: &Rpc| call(rpc, &here).await;
        let (client, output, answer) = context.connect_and(path.clone(), first).await?;
        let mut workspace = Self { room_id: room_of(&client, &path)?, client, output, path };
        let answer = match answer {
            Err(e) if e.code == ErrorCode::UnknownMember => workspace.join_and_call(DEADLINE, call).await?,
            answer => answer?,
        };
        Ok((workspace, answer))
    }

    /// The same with how the room stands. The holder finds its lease there.
    pub(crate) async fn find_state(context: &Context, path: impl Into<PathArg>) -> Result<(Self, RoomState), Failure> {
        Self::find_and_call(context, path, async |rpc, room| rpc.get_room_state(room.clone()).await).await
    }

    async fn reach(context: &Context, path: PathArg, wire: Wire) -> Result<Self, Failure> {
        let path = path.text()?;
        let (client, output) = context.connect_at(Some(path.clone()), wire).await?;
        Ok(Self { room_id: room_of(&client, &path)?, client, output, path })
    }

    /// Makes a call that only a member may make. A caller who is not one yet joins the room that is there, and is told.
    pub(crate) async fn call<T>(
        &mut self,
        call: impl AsyncFn(&Rpc, &RoomId) -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        self.call_within(DEADLINE, call).await
    }

    pub(crate) async fn call_within<T>(
        &mut self,
        deadline: Duration,
        call: impl AsyncFn(&Rpc, &RoomId) -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        let room_id = self.room_id.clone();
        match self.client.call_within(deadline, async |rpc| call(rpc, &room_id).await).await {
            Err(e) if e.code == ErrorCode::UnknownMember => self.join_and_call(deadline, call).await,
            answer => Ok(answer?),
        }
    }

    async fn join_and_call<T>(
        &mut self,
        deadline: Duration,
        call: impl AsyncFn(&Rpc, &RoomId) -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        let joined = join(&mut self.client, &self.path, false, None).await?;
        self.say_joined(&joined);
        self.room_id = joined.room_id.clone();
        Ok(self.client.call_within(deadline, async |rpc| call(rpc, &joined.room_id).await).await?)
    }

    fn say_joined(&self, joined: &Joined) {
        if self.output.format == Format::Text {
            let line = format!("joined {} as {}", harmless(&joined.canonical_path), names::id(&joined.agent_id));
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// What the members are called, for text. Only looks: nobody's presence changes.
    pub(crate) async fn names(&mut self) -> Result<Names, Failure> {
        if self.output.format == Format::Json {
            return Ok(Names::default());
        }
        let (room_id, joins) = (self.room_id.clone(), OneOrMany::One("member_joined".into()));
        let page = async |rpc: &Rpc| {
            let (all, types) = (Some(NAMES), Some(joins.clone()));
            EventApiClient::get_room_events(rpc, room_id.clone(), None, all, types, None, None).await
        };
        let joins = self.client.call(page).await?;
        Ok(Names::of(&joins.events))
    }

    /// The member a name means.
    pub(crate) async fn member(&mut self, name: &str) -> Result<AgentId, Failure> {
        Ok(self.resolve(name).await?.agent_id)
    }

    /// The same, with what it is called.
    pub(crate) async fn resolve(&mut self, name: &str) -> Result<ResolvedMember, Failure> {
        self.call(async |rpc, room| rpc.resolve_member(room.clone(), name.to_owned()).await).await
    }
}

/// The room the daemon found where the client stands.
fn room_of(client: &Client, path: &str) -> Result<RoomId, Failure> {
    client.welcome().room_id.clone().ok_or_else(|| Failure::Refused(nobody_joined(path)))
}

/// Joins the room a path belongs to.
pub(crate) async fn join(
    client: &mut Client,
    path: &str,
    force_new: bool,
    name: Option<String>,
) -> Result<Joined, Failure> {
    let key = key();
    let call = async |rpc: &Rpc| rpc.join_path(path.to_owned(), Some(force_new), name.clone(), key.clone()).await;
    Ok(client.call(call).await?)
}
