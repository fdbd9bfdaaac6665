//! Sessions: one conversation of a harness each, and the dated evidence of what it is doing.

use serde::{Deserialize, Serialize};

use crate::delivery::WayName;
use crate::room::Liveness;
use crate::{AgentId, Error, ErrorCode, WallTime};

/// Makes an enum of words with `ALL`, `as_str` and `parse`.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$word_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }
    };
}

words! {
    /// What a hook or a plugin of a harness reports.
    SessionEvent {
        /// A conversation was opened in its process. The reason says how: `startup`, `resume`, `clear`, `branch`, `compact`.
        SessionStarted = "session_started",
        /// A conversation was closed, or left for another one.
        SessionEnded = "session_ended",
        /// The user sent a prompt.
        Prompt = "prompt",
        ToolStarted = "tool_started",
        ToolEnded = "tool_ended",
        SubagentStarted = "subagent_started",
        SubagentEnded = "subagent_ended",
        TurnEnded = "turn_ended",
        /// The harness asks its user for a permission.
        PermissionAsked = "permission_asked",
        /// The user answered.
        PermissionAnswered = "permission_answered",
        /// The user broke the turn off.
        Interrupted = "interrupted",
        /// The harness says that the session does nothing.
        Idle = "idle",
        /// The harness says that the session works.
        Busy = "busy",
    }
}

words! {
    /// What a session is doing.
    SessionStatus {
        /// It waits for its user.
        Idle = "idle",
        Busy = "busy",
        /// A question to its user is open.
        Asking = "asking",
        /// It ended.
        Gone = "gone",
        Unknown = "unknown",
    }
}

words! {
    /// Where evidence of a session comes from.
    EvidenceSource {
        /// The process of the harness.
        Process = "process",
        /// A file that the harness keeps for each of its sessions.
        SessionFile = "session_file",
        /// The harness's own daemon.
        HarnessDaemon = "harness_daemon",
        /// A hook or a plugin of ours.
        Hook = "hook",
        /// A call that the session made.
        Call = "call",
    }
}

impl SessionEvent {
    /// Reads the name of an event that a caller sent.
    pub fn required(text: &str) -> Result<Self, Error> {
        Self::parse(text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|event| event.as_str()).collect();
            Error::new(ErrorCode::InvalidInput, format!("{text:?} is no event of a session"))
                .hint(format!("use one of {}", names.join(", ")))
        })
    }
}

/// One thing that a source said of a session, and when it was so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub source: EvidenceSource,
    /// In words: `tool_started Bash`, `idle`, `waiting for permission prompt`.
    pub says: String,
    pub at: WallTime,
}

/// A session as `list_sessions` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub harness: String,
    pub session_id: String,
    /// The member that this conversation is, in every room it joined.
    pub agent_id: AgentId,
    pub status: SessionStatus,
    /// Since when; absent while nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
    /// It is busy, but nothing was heard of it for long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubted: bool,
    pub liveness: Liveness,
    /// What decided the liveness, in words.
    pub because: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// By which ways messages reach it beside those that it waits for, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<WayName>,
    /// The newest of each source, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

/// One line of what a session said or did last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeekLine {
    /// `user`, `assistant` or `tool`.
    pub role: String,
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_and_spelled_alike_in_json() {
        for event in SessionEvent::ALL {
            assert_eq!(SessionEvent::parse(event.as_str()), Some(*event));
            assert_eq!(serde_json::to_value(event).unwrap(), event.as_str());
        }
        for status in SessionStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        assert_eq!(SessionEvent::required("dance").unwrap_err().code, ErrorCode::InvalidInput);
    }
}
