//! Finds the room of the workspace a command is about, and calls about it.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tt_proto::escape::escape_text;
use tt_proto::filter::OneOrMany;
use tt_proto::requests::{
    GetRoomEvents, GetRoomState, JoinPath, Joined, Method, ResolveMember, ResolvedMember, RoomState,
};
use tt_proto::room::nobody_joined;
use tt_proto::{AgentId, Error, ErrorCode, RoomId};

use crate::connect::{Client, DEADLINE, Transport};
use crate::output::{Format, Output};
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

/// A room, and a connection for calls about it.
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
        Self::reach(context, path.into(), Transport::Http).await
    }

    /// Finds the room of this path for a command that keeps running: it follows events, and may be interrupted in the middle
    /// of a call.
    pub(crate) async fn find_and_stay(context: &Context, path: impl Into<PathArg>) -> Result<Self, Failure> {
        Self::reach(context, path.into(), Transport::WebSocket).await
    }

    /// Finds the room of this path and makes the first call, a member's, in one request: the call is about the room `here`.
    pub(crate) async fn find_and_call<M: Method>(
        context: &Context,
        path: impl Into<PathArg>,
        request: impl Fn(RoomId) -> M,
    ) -> Result<(Self, M::Answer), Failure> {
        let path = path.into().text()?;
        let first = request(RoomId::from(RoomId::HERE));
        let (client, output, answer) = context.connect_and_call(path.clone(), first).await?;
        let mut workspace = Self { room_id: room_of(&client, &path)?, client, output, path };
        let answer = match answer {
            Err(e) if e.code == ErrorCode::UnknownMember => workspace.join_and_call(DEADLINE, request).await?,
            answer => answer?,
        };
        Ok((workspace, answer))
    }

    /// Finds the room of this path and its state. The holder finds its lease there.
    pub(crate) async fn find_state(context: &Context, path: impl Into<PathArg>) -> Result<(Self, RoomState), Failure> {
        Self::find_and_call(context, path, |room_id| GetRoomState { room_id }).await
    }

    async fn reach(context: &Context, path: PathArg, transport: Transport) -> Result<Self, Failure> {
        let path = path.text()?;
        let (client, output) = context.connect_at(Some(path.clone()), transport).await?;
        Ok(Self { room_id: room_of(&client, &path)?, client, output, path })
    }

    /// Makes a call that only a member may make. A caller who is not one yet joins the room that is there, and is told.
    pub(crate) async fn call<M: Method>(&mut self, request: impl Fn(RoomId) -> M) -> Result<M::Answer, Failure> {
        self.call_within(DEADLINE, request).await
    }

    /// Makes a member's call that may take longer than an ordinary one.
    pub(crate) async fn call_within<M: Method>(
        &mut self,
        deadline: Duration,
        request: impl Fn(RoomId) -> M,
    ) -> Result<M::Answer, Failure> {
        match self.client.call_within(deadline, request(self.room_id.clone())).await {
            Err(e) if e.code == ErrorCode::UnknownMember => self.join_and_call(deadline, request).await,
            answer => Ok(answer?),
        }
    }

    async fn join_and_call<M: Method>(
        &mut self,
        deadline: Duration,
        request: impl Fn(RoomId) -> M,
    ) -> Result<M::Answer, Failure> {
        let joined = join(&mut self.client, &self.path, false, None).await?;
        self.say_joined(&joined);
        self.room_id = joined.room_id.clone();
        Ok(self.client.call_within(deadline, request(joined.room_id)).await?)
    }

    fn say_joined(&self, joined: &Joined) {
        if self.output.format == Format::Text {
            let line = format!("joined {} as {}", escape_text(&joined.canonical_path), names::id(&joined.agent_id));
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// What the members are called, for text. Only looks: nobody's presence changes.
    pub(crate) async fn names(&mut self) -> Result<Names, Failure> {
        if self.output.format == Format::Json {
            return Ok(Names::default());
        }
        let (room_id, joins) = (self.room_id.clone(), OneOrMany::One("member_joined".into()));
        let page = {
            let (all, types) = (Some(NAMES), Some(joins.clone()));
            GetRoomEvents { room_id: room_id.clone(), limit: all, event_type: types, ..Default::default() }
        };
        let joins = self.client.call(page).await?;
        Ok(Names::of(&joins.events))
    }

    /// The member a name means.
    pub(crate) async fn member(&mut self, name: &str) -> Result<AgentId, Failure> {
        Ok(self.resolve(name).await?.agent_id)
    }

    /// The member a name means, with its display name.
    pub(crate) async fn resolve(&mut self, name: &str) -> Result<ResolvedMember, Failure> {
        self.call(|room_id| ResolveMember { room_id, name: name.to_owned() }).await
    }
}

/// The room the daemon found for the path of the greeting.
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
    let call = JoinPath {
        context_path: path.to_owned(),
        force_new: Some(force_new),
        display_name: name.clone(),
        idempotency_key: key.clone(),
    };
    Ok(client.call(call).await?)
}
