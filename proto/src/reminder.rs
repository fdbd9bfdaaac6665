//! Reminders: messages that are written now and sent later, once or again and again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{AgentId, ReminderId, RoomId, WallTime};

/// The shortest pause between two reminders of the same series.
pub const MIN_EVERY: Duration = Duration::from_secs(10);

/// The most times one reminder is sent.
pub const MAX_TIMES: u32 = 1000;

/// The farthest moment for which a reminder or a deadline can be set.
pub const MAX_AHEAD: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The most reminders that one member may have set and not yet seen sent, in one room.
pub const MAX_REMINDERS: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminder {
    pub reminder_id: ReminderId,
    pub room_id: RoomId,
    pub from_agent_id: AgentId,
    /// Absent if it is for the one who set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_agent_id: Option<AgentId>,
    pub body: String,
    /// When it is sent next.
    pub due_at: WallTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// How many times it is still sent.
    pub times: u32,
}
