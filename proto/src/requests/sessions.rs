//! Sessions and the evidence of what they are doing.

use serde::{Deserialize, Serialize};

use super::field::methods;
use crate::filter::OneOrMany;
use crate::session::{PeekLine, Session, SessionStatus};
use crate::{AgentId, RoomId, WallTime};

methods! {
    /// Reports what a hook or a plugin saw in a session of the caller's harness. Never creates a room or a member.
    ReportSession = "report_session" -> Reported {
        /// The harness, by the name that `tt install` knows.
        harness: String,
        session_id: String,
        /// What happened: a word of `SessionEvent`.
        event: String,
        /// How a session was opened, or why it ended, in the harness's own word.
        reason: Option<String>,
        /// When it happened. Reports may arrive out of order; without it they count as of now.
        at: Option<WallTime>,
        /// When the hook began, in milliseconds of the machine's clock that no one sets (`CLOCK_MONOTONIC`; `CLOCK_UPTIME_RAW` on
        /// macOS). It goes before `at`.
        began_ms: Option<i64>,
        /// The subagent in which it happened, if it was in one.
        subagent_id: Option<String>,
        tool_use_id: Option<String>,
        tool_name: Option<String>,
        /// Whether the tool is a command that runs `tt`.
        runs_tt: Option<bool>,
        cwd: Option<String>,
        transcript_path: Option<String>,
        /// The session that this one follows in the same process, where the harness tells.
        previous_session_id: Option<String>,
        /// What this hook prints at this moment reaches the model of its session, so the answer may say something.
        can_speak: Option<bool>,
        /// The files that the tool is about to change, as absolute paths: what is answered decides whether it may. Only a hook that can
        /// keep the tool from running names them.
        edits: Option<OneOrMany>,
        /// The tool runs a shell command.
        is_shell: Option<bool>,
    }

    /// Lists the sessions that are known, the living ones first, as many as fit an answer.
    ListSessions = "list_sessions" -> SessionList {
        /// Also those that ended.
        include_gone: Option<bool>,
    }

    /// Shows what the session of an agent said and did last.
    PeekSession = "peek_session" -> Peek {
        agent_id: AgentId,
        /// How many lines at most; 20 unless told.
        lines: Option<usize>,
    }
}

/// The answer to `report_session`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// The member that this session is from now on.
    pub agent_id: AgentId,
    pub status: SessionStatus,
    /// What the hook has to print. Absent with nothing to say, and for a hook that cannot speak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say: Option<Say>,
    /// The tool is not to be run, and why, for the model. What others wrote is in it only inside a framed block, escaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

/// What a hook tells the model of its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Say {
    /// What others wrote is in it only inside a framed block, escaped.
    pub text: String,
    /// The turn is not to end yet, and the text says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds: bool,
    /// The messages in the text. They belong to this connection, to be confirmed once the text was printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<SaidMessages>,
}

/// Messages of one room that a hook prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaidMessages {
    pub room_id: RoomId,
    pub event_seqs: Vec<i64>,
}

/// The answer to `list_sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionList {
    pub sessions: Vec<Session>,
    /// Whether there are sessions that are not listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// The answer to `peek_session`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peek {
    pub session: Session,
    /// Oldest first. Text of the session: it must be made harmless before it is shown.
    pub lines: Vec<PeekLine>,
    /// Why there are no lines, or not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}
