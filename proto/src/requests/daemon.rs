//! The handshake, and calls about the daemon itself.

use serde::{Deserialize, Serialize};

use super::field::methods;
use crate::hello::{Greeting, Identity, Program, Step};
use crate::message::Unread;
use crate::{RoomId, WallTime};

methods! {
    /// Binds the connection to the identity derived from its process and signals. Must be the first call.
    Hello = "hello" -> Welcome {
        hello: Greeting,
    }

    /// Tells who the daemon takes the caller for.
    Whoami = "whoami" -> WhoamiAnswer {
        /// Whether to list every rule that was tried.
        explain: Option<bool>,
    }

    /// The daemon's report about itself.
    DaemonStatus = "daemon_status" -> DaemonStatusAnswer {}

    /// Tells the daemon to exit. It answers, finishes the calls under way and exits.
    DaemonStop = "daemon_stop" -> Stopping {}
}

/// The answer to `hello`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    pub protocol: u32,
    pub min_protocol: u32,
    pub version: String,
    pub capabilities: Vec<String>,
    pub identity: Identity,
    pub pid: u32,
    /// Started by systemd or launchd, which alone may restart it.
    pub supervised: bool,
    /// The program the daemon runs, so that a newer client can tell whether a restart would bring a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    pub log: String,
    /// The room `context_path` belongs to, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room_id: Option<RoomId>,
    /// The messages that wait for the caller in that room.
    #[serde(default, skip_serializing_if = "Unread::is_empty")]
    pub inbox: Unread,
}

/// The answer to `whoami`: the identity, and with `explain` every rule that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhoamiAnswer {
    #[serde(flatten)]
    pub identity: Identity,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub explanation: Vec<Step>,
}

/// The answer to `daemon_status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatusAnswer {
    pub status: String,
    pub pid: u32,
    pub version: String,
    pub protocol: u32,
    pub started_at: WallTime,
    pub uptime_ms: u64,
    pub supervised: bool,
    pub data_dir: String,
    pub socket: String,
    pub log: String,
    pub connections: usize,
    pub calls: usize,
    pub waiters: usize,
    /// How much is kept in memory about rooms: waits, listeners, followers, and who was told what.
    #[serde(default)]
    pub remembered: usize,
    /// The newest migration the database has.
    pub schema: i64,
    /// The daemon exits after being idle this long; absent when it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_exit_ms: Option<u64>,
}

/// The answer to `daemon_stop`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stopping {
    pub status: String,
    pub pid: u32,
}
