//! Notes.

use serde::{Deserialize, Serialize};

use super::field::methods;
use crate::note::Note;
use crate::{AgentId, NoteId, RoomId, WallTime};

methods! {
    /// Adds a note.
    AddNote = "add_note" -> NoteAdded {
        room_id: RoomId,
        body: String,
        /// The turn the note is about.
        turn_id: Option<i64>,
        idempotency_key: Option<String>,
    }

    /// Lists a page of notes, oldest first.
    ListNotes = "list_notes" -> NoteList {
        room_id: RoomId,
        after_note_id: Option<NoteId>,
        include_resolved: Option<bool>,
        limit: Option<usize>,
    }

    /// Marks a note as resolved.
    ResolveNote = "resolve_note" -> NoteResolved {
        room_id: RoomId,
        note_id: NoteId,
        idempotency_key: Option<String>,
    }
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

/// The answer to `list_notes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteList {
    pub notes: Vec<Note>,
    /// Whether there are more after the last one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// The answer to `resolve_note`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteResolved {
    pub note_id: NoteId,
    pub resolved_at: WallTime,
    pub resolved_by_agent_id: AgentId,
}
