//! Reaches the daemon: connects, greets it, starts it if there is none, replaces it if it is older, and reconnects when it
//! goes away.
//!
//! Two clients share this. [`HttpClient`] is synchronous and makes one call at a time, without a handshake, task, timer or
//! runtime, because most of a short command's time is start-up. [`Client`] is asynchronous, over a WebSocket, for commands
//! that keep running: it has many calls under way, and streams.

mod attempts;
mod http;
mod http_connection;
mod replace;
mod socket;
mod start;
mod websocket;

use std::path::PathBuf;
use std::time::Duration;

pub use jsonrpsee::core::ClientError;
use tt_proto::hello::{CAPABILITIES, Greeting, Signals};
use tt_proto::paths::{Environment, Paths};
use tt_proto::{Error, ErrorCode, PROTOCOL, VERSION};

pub use http::HttpClient;
pub use replace::{LockState, lock_state, stop};
pub use start::{Started, daemon_program, start};
pub use websocket::{Client, Rpc};

/// No ordinary call takes longer than this on a daemon that works.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// How long a start of the daemon may take. A cold start takes tens of milliseconds; a database with much to recover takes
/// longer.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait before connecting again to a daemon that closed the connection.
pub(crate) const RECONNECT_DELAY: Duration = Duration::from_millis(5);

/// What a client needs to know before it connects.
#[derive(Debug, Clone)]
pub struct Settings {
    pub env: Environment,
    pub paths: Paths,
    pub signals: Signals,
    pub cwd: Option<PathBuf>,
    pub autostart: bool,
    pub version: String,
    pub protocol: u32,
    /// The daemon to start; by default the one in the directory of this program.
    pub daemon: Option<PathBuf>,
    pub deadline: Duration,
    /// How long a start of the daemon may take.
    pub start_timeout: Duration,
    /// A path in the workspace that the caller works with. The response to the greeting names its room.
    pub context_path: Option<String>,
    /// Whether a member's call also makes the caller a member of the room.
    pub joins: bool,
}

impl Settings {
    pub fn from_environment(env: Environment) -> Result<Self, Error> {
        Ok(Self {
            paths: Paths::resolve(&env)?,
            signals: crate::signals::from_environment(&env),
            cwd: std::env::current_dir().ok(),
            autostart: !env.flag("TT_NO_AUTOSTART"),
            version: VERSION.to_owned(),
            protocol: PROTOCOL,
            daemon: env.get("TALKING_STICK_DAEMON").map(PathBuf::from),
            deadline: DEADLINE,
            start_timeout: START_TIMEOUT,
            context_path: None,
            joins: false,
            env,
        })
    }

    fn greeting(&self) -> Greeting {
        Greeting {
            protocol: self.protocol,
            version: self.version.clone(),
            capabilities: CAPABILITIES.iter().map(|c| (*c).to_owned()).collect(),
            signals: self.signals.clone(),
            cwd: self.cwd.as_ref().map(|d| d.display().to_string()),
            context_path: self.context_path.clone(),
            joins: self.joins,
        }
    }

    /// The settings for a reconnect. The room is asked for once: later it is known, and the path may be gone by then.
    fn without_context_path(self) -> Self {
        Self { context_path: None, ..self }
    }
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
enum CallError {
    /// The daemon answered with an error.
    #[error("{0}")]
    Refused(Error),
    #[error("the call timed out")]
    TimedOut,
    /// The daemon answered, and perhaps carried the call out, but its answer is not what was expected.
    #[error("{0}")]
    Unreadable(serde_json::Error),
    /// The connection ended before the answer, or is not one to a daemon.
    #[error("{0}")]
    Cut(String),
}

impl From<ClientError> for CallError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Call(refusal) => Self::Refused(Error::from(&refusal)),
            ClientError::RequestTimeout => Self::TimedOut,
            ClientError::ParseError(e) => Self::Unreadable(e),
            cut => Self::Cut(cut.to_string()),
        }
    }
}

/// Why a greeting failed.
#[derive(Debug)]
enum GreetError {
    Call(CallError),
    /// The process at the other end belongs to this other user. Nothing was sent.
    OtherUser(u32),
}

impl GreetError {
    fn hung_up(why: impl std::fmt::Display) -> Self {
        Self::Call(CallError::Cut(why.to_string()))
    }
}

fn other_user(settings: &Settings, uid: u32) -> Error {
    let socket = settings.paths.socket.display();
    Error::new(ErrorCode::DaemonUnreachable, format!("{socket} is served by uid {uid}, not by you; nothing was sent"))
        .hint(format!("find out who put it there, remove it (rm '{socket}') and try again"))
        .detail("path", socket.to_string())
}

pub(crate) fn unreadable(why: &serde_json::Error) -> Error {
    Error::new(ErrorCode::ProtocolMismatch, format!("the daemon's answer could not be read: {why}"))
}

fn busy(settings: &Settings) -> Error {
    Error::new(
        ErrorCode::DaemonUnreachable,
        format!("the daemon is running but did not answer within {} s", settings.deadline.as_secs_f32()),
    )
    .hint("it may be overloaded or stuck: try again, then run `tt daemon restart`")
    .detail("log", settings.paths.log().display().to_string())
}

fn unreachable(settings: &Settings, why: &str) -> Error {
    Error::new(ErrorCode::DaemonUnreachable, format!("the daemon keeps hanging up: {why}"))
        .hint(format!("look at {}, then run `tt daemon restart`", settings.paths.log().display()))
        .detail("log", settings.paths.log().display().to_string())
}
