//! Notes: durable, resolvable remarks. They page nobody.

use serde::{Deserialize, Serialize};

use crate::{AgentId, NoteId, RoomId, WallTime};

/// The longest body, in bytes of UTF-8.
pub const MAX_NOTE_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub note_id: NoteId,
    pub room_id: RoomId,
    pub turn_id: Option<i64>,
    pub author_agent_id: AgentId,
    pub body: String,
    pub created_at: WallTime,
    pub resolved_at: Option<WallTime>,
    pub resolved_by_agent_id: Option<AgentId>,
}

/// A page of notes, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    pub notes: Vec<Note>,
}

/// The answer to `add_note`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteAdded {
    pub note_id: NoteId,
    pub room_id: RoomId,
    pub turn_id: Option<i64>,
    pub author_agent_id: AgentId,
    pub created_at: WallTime,
}

/// The answer to `resolve_note`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteResolved {
    pub note_id: NoteId,
    pub resolved_at: WallTime,
    pub resolved_by_agent_id: AgentId,
}
