//! The append-only log: one row for everything that happened in a room.

use serde::{Deserialize, Serialize};

use crate::handoff::RawJson;
use crate::{AgentId, EventId, RoomId, WallTime};

/// What happened. A type that this version does not know is read as `Unknown` and written as `unknown`, so that a newer
/// daemon never breaks an older reader; everything else about such an event is kept.
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
    MemberRenamed,
    NoteAdded,
    NoteResolved,
    ReservationExpired,
    GuardOverridden,
    /// A type of a newer version. It is in no list of types and cannot be asked for.
    #[serde(other)]
    Unknown,
}

impl EventType {
    /// All known types.
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
        EventType::MemberRenamed,
        EventType::NoteAdded,
        EventType::NoteResolved,
        EventType::ReservationExpired,
        EventType::GuardOverridden,
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
            EventType::MemberRenamed => "member_renamed",
            EventType::NoteAdded => "note_added",
            EventType::NoteResolved => "note_resolved",
            EventType::ReservationExpired => "reservation_expired",
            EventType::GuardOverridden => "guard_overridden",
            EventType::Unknown => "unknown",
        }
    }

    /// The known type of this name.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<i64>,
    pub event_type: EventType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub created_at: WallTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<RawJson>,
}

/// The payload of `member_joined`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberJoined {
    pub display_name: String,
    pub harness: Option<String>,
}

/// The payload of `member_renamed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRenamed {
    pub display_name: String,
    pub previous_name: String,
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

    #[test]
    fn a_type_of_a_newer_version_is_read_as_unknown() {
        let read: EventType = serde_json::from_str(r#""reminder_set""#).unwrap();
        assert_eq!(read, EventType::Unknown);
        assert_eq!(serde_json::to_value(read).unwrap(), "unknown");
        assert_eq!(serde_json::from_str::<EventType>(r#""unknown""#).unwrap(), EventType::Unknown);
        assert!(serde_json::from_str::<EventType>("7").is_err(), "a type is text");
        for name in ["unknown", "reminder_set"] {
            assert_eq!(EventType::parse(name), None, "nobody can ask for {name}");
        }
        let event: Event = serde_json::from_str(
            r#"{"event_seq":7,"event_id":"e","room_id":"r","turn_id":null,"event_type":"reminder_set","from_agent_id":"a",
                "to_agent_id":null,"handoff":null,"reason":"later","created_at":"2026-11-16T01:02:03.456Z",
                "payload":{"at":1},"a_newer_field":true}"#,
        )
        .unwrap();
        assert_eq!(
            (event.event_type, event.event_seq, event.reason.as_deref()),
            (EventType::Unknown, 7, Some("later"))
        );
        assert_eq!(event.payload.unwrap().as_str(), r#"{"at":1}"#);
    }
}
