//! What the guard says to a commit or a push.

use serde::{Deserialize, Serialize};

use super::field::methods;
use crate::{Error, ErrorCode, RoomId};

methods! {
    /// Asks whether it is the caller's turn to commit or to push. A commit while nobody has the stick takes it until the process of
    /// git has ended. Never creates a room; an agent that was in no room joins.
    CheckGuard = "check_guard" -> GuardAnswer {
        /// The directory in which git runs.
        context_path: String,
        /// `commit` or `push`.
        action: String,
        /// The process of git, above the caller.
        process: Option<u32>,
        /// Go on in any case. It is written down, and the holder is told.
        is_overridden: Option<bool>,
    }
}

/// What the caller is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardAction {
    Commit,
    Push,
}

impl GuardAction {
    pub const ALL: &[Self] = &[Self::Commit, Self::Push];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Push => "push",
        }
    }

    /// Reads the action that a caller sent.
    pub fn required(text: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|action| action.as_str() == text).ok_or_else(|| {
            Error::new(ErrorCode::InvalidInput, format!("{text:?} is nothing that is guarded"))
                .hint("use commit or push")
        })
    }
}

/// The answer to `check_guard`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardAnswer {
    pub verdict: GuardVerdict,
    /// Absent where there is no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room_id: Option<RoomId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<i64>,
    /// Why, for a model. What others wrote is in it only inside a framed block, escaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What the guard says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardVerdict {
    /// There is nothing to say.
    Passes,
    /// Nobody had the stick; the caller has it now.
    Taken,
    /// It is not the caller's turn, and it may go on.
    Warned,
    /// It is not the caller's turn.
    Refused,
    /// It is not the caller's turn, and it goes on by its own decision, which is written down.
    Overridden,
}
