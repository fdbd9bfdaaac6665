//! Notes: durable, resolvable remarks. They notify nobody.

use serde::{Deserialize, Serialize};

pub use crate::requests::{NoteAdded, NoteResolved};
use crate::{AgentId, NoteId, RoomId, WallTime};

/// The longest body, in bytes of UTF-8.
pub const MAX_NOTE_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub note_id: NoteId,
    pub room_id: RoomId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<i64>,
    pub author_agent_id: AgentId,
    pub body: String,
    pub created_at: WallTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<WallTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by_agent_id: Option<AgentId>,
}
