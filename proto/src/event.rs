//! The append-only log: one row for everything that happened in a room.

use serde::{Deserialize, Serialize};

use crate::handoff::RawJson;
use crate::{AgentId, EventId, RoomId, WallTime};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    Claim,
    Release,
    Pass,
    Takeover,
    Close,
    Kick,
    MessageSent,
    MemberJoined,
    MemberLeft,
    NoteAdded,
    NoteResolved,
    ReservationExpired,
}

impl EventType {
    pub const ALL: &[EventType] = &[
        EventType::Claim,
        EventType::Release,
        EventType::Pass,
        EventType::Takeover,
        EventType::Close,
        EventType::Kick,
        EventType::MessageSent,
        EventType::MemberJoined,
        EventType::MemberLeft,
        EventType::NoteAdded,
        EventType::NoteResolved,
        EventType::ReservationExpired,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            EventType::Claim => "claim",
            EventType::Release => "release",
            EventType::Pass => "pass",
            EventType::Takeover => "takeover",
            EventType::Close => "close",
            EventType::Kick => "kick",
            EventType::MessageSent => "message_sent",
            EventType::MemberJoined => "member_joined",
            EventType::MemberLeft => "member_left",
            EventType::NoteAdded => "note_added",
            EventType::NoteResolved => "note_resolved",
            EventType::ReservationExpired => "reservation_expired",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|t| t.as_str() == text)
    }
}

/// One row of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub event_seq: i64,
    pub event_id: EventId,
    pub room_id: RoomId,
    pub turn_id: Option<i64>,
    pub event_type: EventType,
    pub from_agent_id: Option<AgentId>,
    pub to_agent_id: Option<AgentId>,
    pub handoff: Option<RawJson>,
    pub reason: Option<String>,
    pub created_at: WallTime,
    pub payload: Option<RawJson>,
}

/// A page of the log, and where to go on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    pub events: Vec<Event>,
    pub cursor_event_seq: i64,
}

/// One item of a subscription: an event and where to go on from after it, or word that the stream cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventItem {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
    pub cursor_event_seq: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync: Option<Resync>,
}

/// Why a subscription ends and what its reader must do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resync {
    /// `room_deleted`: join again and start from the new room's cursor. `stopping`, `storage_unavailable`: subscribe again
    /// from the cursor.
    pub reason: String,
}

/// The payload of `member_joined`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberJoined {
    pub display_name: String,
    pub harness: Option<String>,
}

/// The payload of `note_added` and `note_resolved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteRef {
    pub note_id: crate::NoteId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_the_same_name_in_sql_and_json() {
        for event_type in EventType::ALL {
            assert_eq!(serde_json::to_value(event_type).unwrap(), event_type.as_str());
            assert_eq!(EventType::parse(event_type.as_str()), Some(*event_type));
        }
        assert_eq!(EventType::parse("Claim"), None);
    }
}
