//! The room and the connection of one short command.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tt_proto::escape::escape_text;
use tt_proto::filter::OneOrMany;
use tt_proto::requests::{
    GetRoomEvents, GetRoomState, JoinPath, Method, ResolveMember, ResolvedMember, RoomState, Welcome,
};
use tt_proto::room::nobody_joined;
use tt_proto::{AgentId, Error, ErrorCode, RoomId};

use crate::Context;
use crate::connect::{DEADLINE, HttpClient};
use crate::error::CommandError;
use crate::output::{Format, Output};
use crate::text::names::{self, Names};

// The workspace argument. A doc comment here would replace the description of the command.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PathArg {
    /// The workspace: any path in it [default: the current directory]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// The workspace, as a flag
    #[arg(long = "path", value_name = "DIR", conflicts_with = "path")]
    dir: Option<PathBuf>,
}

// The workspace argument of a command whose positional arguments leave no room for a path.
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

    pub(crate) fn is_given(&self) -> bool {
        self.path.is_some() || self.dir.is_some()
    }

    /// The path as the daemon expects it: text, relative to the caller's working directory.
    pub(crate) fn text(&self) -> Result<String, CommandError> {
        let path = self.path.as_ref().or(self.dir.as_ref()).cloned().unwrap_or_else(|| PathBuf::from("."));
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| {
            CommandError::Refused(
                Error::new(ErrorCode::InvalidInput, format!("{} is not UTF-8", path.display()))
                    .hint("rename it, or use another path in the workspace"),
            )
        })
    }
}

/// How many events are read at a time to find the names of members.
const MAX_NAMES: usize = 1000;

/// Makes a fresh key for one write, so that repeating it after a lost connection changes nothing. The time, the process and
/// a count make it unique, without seeding a generator of random numbers in a program that makes one call.
pub fn fresh_key() -> Option<String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (now, count) = (UNIX_EPOCH.elapsed().unwrap_or_default(), COUNT.fetch_add(1, Ordering::Relaxed));
    Some(format!("{:x}-{:x}-{count:x}", now.as_nanos(), std::process::id()))
}

/// A room, and a connection for calls about it.
pub(crate) struct Session {
    pub client: HttpClient,
    pub output: Output,
    pub room_id: RoomId,
}

impl Session {
    /// Reaches the daemon and finds the room of this path.
    pub(crate) fn find(context: &Context, path: impl Into<PathArg>) -> Result<Self, CommandError> {
        let path = path.into().text()?;
        let client =
            HttpClient::connect(context.settings_at(Some(path.clone()))).map_err(CommandError::from_connect)?;
        let output = context.output_for(client.welcome());
        Ok(Self { room_id: room_of(client.welcome(), &path)?, client, output })
    }

    /// Finds the room of this path and makes a member's first call in one request: the call is about the room `here`.
    pub(crate) fn find_and_call<M: Method>(
        context: &Context,
        path: impl Into<PathArg>,
        request: impl Fn(RoomId) -> M,
    ) -> Result<(Self, M::Answer), CommandError> {
        let path = path.into().text()?;
        let first = request(RoomId::from(RoomId::HERE));
        let (client, answer) = HttpClient::connect_and_call(context.settings_at(Some(path.clone())), &first)
            .map_err(CommandError::from_connect)?;
        let output = context.output_for(client.welcome());
        let mut session = Self { room_id: room_of(client.welcome(), &path)?, client, output };
        let answer = match answer {
            Err(e) if e.code == ErrorCode::UnknownMember => session.join_and_call(DEADLINE, request)?,
            answer => answer?,
        };
        Ok((session, answer))
    }

    /// Finds the room of this path and its state. The holder finds its lease there.
    pub(crate) fn find_state(context: &Context, path: impl Into<PathArg>) -> Result<(Self, RoomState), CommandError> {
        Self::find_and_call(context, path, |room_id| GetRoomState { room_id, ..Default::default() })
    }

    /// Makes a call that only a member may make. A caller that is not a member yet joins the existing room with it, unless the
    /// call is refused, and is told so. One that was kicked stays out.
    pub(crate) fn call<M: Method>(&mut self, request: impl Fn(RoomId) -> M) -> Result<M::Answer, CommandError> {
        self.call_within(DEADLINE, request)
    }

    /// Makes a member's call that may take longer than an ordinary one.
    pub(crate) fn call_within<M: Method>(
        &mut self,
        deadline: Duration,
        request: impl Fn(RoomId) -> M,
    ) -> Result<M::Answer, CommandError> {
        match self.client.call_within(deadline, &request(self.room_id.clone())) {
            Err(e) if e.code == ErrorCode::UnknownMember => self.join_and_call(deadline, request),
            answer => Ok(answer?),
        }
    }

    fn join_and_call<M: Method>(
        &mut self,
        deadline: Duration,
        request: impl Fn(RoomId) -> M,
    ) -> Result<M::Answer, CommandError> {
        // Joins and calls in one: a call that is refused must not make the caller a member.
        self.client.join_by_calls()?;
        let answer = self.client.call_within(deadline, &request(self.room_id.clone()))?;
        if self.output.format == Format::Text {
            let state = GetRoomState { room_id: self.room_id.clone(), ..Default::default() };
            // A turn that the call brought must not be lost because its room cannot be named.
            if let Ok(state) = self.client.call(&state) {
                report_join(&self.output, &state.room.canonical_path, &self.client.welcome().identity.agent_id);
            }
        }
        Ok(answer)
    }

    /// The names of the members, for text. It is only a read: no member's presence changes.
    pub(crate) fn names(&mut self) -> Result<Names, CommandError> {
        if self.output.format == Format::Json {
            return Ok(Names::default());
        }
        let mut names = Names::default();
        loop {
            let page = self.client.call(&names_request(&self.room_id, names.cursor()))?;
            if names.learn_page(&page) {
                return Ok(names);
            }
        }
    }

    /// The member with this name.
    pub(crate) fn member(&mut self, name: &str) -> Result<AgentId, CommandError> {
        Ok(self.resolve(name)?.agent_id)
    }

    /// The member with this name, and its display name.
    pub(crate) fn resolve(&mut self, name: &str) -> Result<ResolvedMember, CommandError> {
        self.call(|room_id| ResolveMember { room_id, name: name.to_owned() })
    }
}

/// The room the daemon found for the path of the greeting.
pub(crate) fn room_of(welcome: &Welcome, path: &str) -> Result<RoomId, CommandError> {
    welcome.room_id.clone().ok_or_else(|| CommandError::Refused(nobody_joined(path)))
}

/// The request to join the room a path belongs to.
pub(crate) fn join_request(path: &str, force_new: bool, name: Option<String>) -> JoinPath {
    JoinPath {
        context_path: path.to_owned(),
        force_new: Some(force_new),
        display_name: name,
        idempotency_key: fresh_key(),
    }
}

/// Tells a person that the command has joined the room.
pub(crate) fn report_join(output: &Output, canonical_path: &str, agent_id: &AgentId) {
    if output.format == Format::Text {
        let line = format!("joined {} as {}", escape_text(canonical_path), names::id(agent_id));
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// The request for the next events that name members: those after this one.
pub(crate) fn names_request(room_id: &RoomId, after: i64) -> GetRoomEvents {
    let types = ["member_joined", "member_left", "member_renamed"];
    GetRoomEvents {
        room_id: room_id.clone(),
        after_event_seq: Some(after),
        limit: Some(MAX_NAMES),
        event_type: Some(OneOrMany::Many(types.map(str::to_owned).to_vec())),
        ..Default::default()
    }
}
