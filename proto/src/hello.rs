//! The handshake: what a client tells about itself, and the identity the daemon derives from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::AgentId;

/// What this build can do beyond the bare protocol. A peer asks for a capability by name, never for a version.
pub const CAPABILITIES: &[&str] =
    &["rooms", "turns", "notes", "messages", "events", "room_policy", "idempotency_keys", "here", "sessions"];

/// What a client tells about itself in the first call on every connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Greeting {
    pub protocol: u32,
    pub version: String,
    #[serde(default)]
    pub capabilities: Vec<String>,
    #[serde(default)]
    pub signals: Signals,
    /// The caller's working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// A path of the workspace the connection is about: the answer then names its room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_path: Option<String>,
    /// A call that only a member may make also makes the caller a member of that room, if the call succeeds. It does not
    /// bring back a member that was kicked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins: bool,
}

/// What the client knows of its environment. Evidence, not authority: the daemon derives the identity.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Signals {
    /// The variables that are set, of those that identify a harness, a session or a terminal.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// `clientInfo.name` of an MCP client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_info: Option<String>,
    /// A session id that came with the call itself: with an MCP call, or on a hook's standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The id of the tool use for which an MCP call is made, where the harness tells. A hook reports the same id, and
    /// whether it was a subagent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// The caller is a hook that reports on its session (`report_session`). The call alone then says nothing of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hook: bool,
}

impl Signals {
    /// The value of a variable that is set and not empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }
}

/// A program file as it was when it was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub path: String,
    pub device: u64,
    pub inode: u64,
}

/// How an identity was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// `TT_HARNESS_AGENT_ID` named it.
    Override,
    /// A variable of the harness.
    Env,
    /// A harness among the caller's ancestors.
    Ancestry,
    /// The MCP client's name.
    ClientInfo,
    /// No harness: the person whose uid the kernel reports.
    User,
}

/// A process that cannot be mistaken for a later one with the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Anchor {
    pub host_id: String,
    pub pid: u32,
    /// Opaque: equal for the same process and different for any other process of the same host and pid.
    pub process_started_at: String,
}

/// Who the daemon takes the caller for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub agent_id: AgentId,
    pub display_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    pub found_by: FoundBy,
    /// The process whose exit means the member is gone; none where the kernel shows no evidence.
    pub anchor: Option<Anchor>,
    pub user: String,
}

impl Identity {
    /// A person reads text; an agent reads JSON.
    pub fn is_person(&self) -> bool {
        self.found_by == FoundBy::User
    }
}

/// One step of the derivation, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub rule: String,
    pub finding: String,
}
