//! From where the caller stands to the room that belongs to it.

use std::io::Write;
use std::path::PathBuf;

use jsonrpsee::core::ClientError;
use tt_proto::api::{EventApiClient, RoomApiClient};
use tt_proto::filter::OneOrMany;
use tt_proto::room::{Joined, ResolvedMember, RoomState};
use tt_proto::{AgentId, Error, ErrorCode, RoomId};

use crate::connect::{Client, Rpc, Wire};
use crate::output::{Format, Output, harmless};
use crate::render::Names;
use crate::{Context, Failure, render};

/// Which workspace a command is about.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PathArg {
    /// The workspace: any path in it [default: the current directory]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// The same, as a flag
    #[arg(long = "path", value_name = "DIR", conflicts_with = "path")]
    dir: Option<PathBuf>,
}

/// The same for commands whose other words leave no room for a path.
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

/// A fresh key for one write, so that repeating it after a lost connection changes nothing.
pub(crate) fn key() -> Option<String> {
    Some(uuid::Uuid::now_v7().to_string())
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

    async fn reach(context: &Context, path: PathArg, wire: Wire) -> Result<Self, Failure> {
        let path = path.text()?;
        let (client, output) = context.connect_at(Some(path.clone()), wire).await?;
        let Some(room) = &client.welcome().room else {
            return Err(Failure::Refused(
                Error::new(ErrorCode::RoomNotFound, "nobody has joined this workspace yet")
                    .hint("join it: tt join")
                    .detail("path", path),
            ));
        };
        let room_id = room.room_id.clone();
        Ok(Self { client, output, room_id, path })
    }

    /// Makes a call that only a member may make. A caller who is not one yet joins the room that is there, and is told.
    pub(crate) async fn call<T>(
        &mut self,
        call: impl AsyncFn(&Rpc, &RoomId) -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        let deadline = crate::connect::DEADLINE;
        self.call_within(deadline, call).await
    }

    pub(crate) async fn call_within<T>(
        &mut self,
        deadline: std::time::Duration,
        call: impl AsyncFn(&Rpc, &RoomId) -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        let room_id = self.room_id.clone();
        match self.client.call_within(deadline, async |rpc| call(rpc, &room_id).await).await {
            Err(e) if e.code == ErrorCode::UnknownMember => {
                let joined = join(&mut self.client, &self.path, false, None).await?;
                self.say_joined(&joined);
                self.room_id = joined.room_id.clone();
                Ok(self.client.call_within(deadline, async |rpc| call(rpc, &joined.room_id).await).await?)
            }
            answer => Ok(answer?),
        }
    }

    fn say_joined(&self, joined: &Joined) {
        if self.output.format == Format::Text {
            let line = format!("joined {} as {}", harmless(&joined.canonical_path), render::id(&joined.agent_id));
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// How the room stands. The holder finds its lease here.
    pub(crate) async fn state(&mut self) -> Result<RoomState, Failure> {
        let room_id = self.room_id.clone();
        Ok(self.client.call(async |rpc| rpc.get_room_state(room_id.clone()).await).await?)
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
