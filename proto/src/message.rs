//! Messages: said out of band, in the middle of anyone's turn. They grant nothing.

use serde::{Deserialize, Serialize};

use crate::delivery::Recipient;
use crate::event::Event;
use crate::{Error, ErrorCode, EventId, RoomId, WallTime};

/// The longest body, in bytes of UTF-8.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// Advice to the receiving side, never authority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryHint {
    #[default]
    Normal,
    Important,
    Interrupt,
}

impl DeliveryHint {
    pub const fn as_str(self) -> &'static str {
        match self {
            DeliveryHint::Normal => "normal",
            DeliveryHint::Important => "important",
            DeliveryHint::Interrupt => "interrupt",
        }
    }

    pub fn parse(text: &str) -> Result<Self, Error> {
        let all = [Self::Normal, Self::Important, Self::Interrupt];
        all.into_iter()
            .find(|hint| hint.as_str() == text)
            .ok_or_else(|| Error::new(ErrorCode::InvalidDeliveryHint, format!("there is no delivery hint {text:?}")))
    }
}

/// The payload of `message_sent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSent {
    pub body: String,
    pub delivery_hint: DeliveryHint,
}

/// The answer to `send_message`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub event_seq: i64,
    pub event_id: EventId,
    pub created_at: WallTime,
    pub recipients: Vec<Recipient>,
}

/// The answer to `take_messages`. What was taken belongs to this connection until it is confirmed; a connection that
/// ends first gives it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Skipped>,
    pub events: Vec<Event>,
    /// How many newer ones stayed in the inbox.
    #[serde(default)]
    pub more: usize,
}

/// The answer to `list_inbox`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxRooms {
    pub rooms: Vec<InboxRoom>,
}

/// A room in which messages wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxRoom {
    pub room_id: RoomId,
    pub unread: usize,
}

/// The answer to `return_messages`: how many went back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    pub returned: usize,
}

/// Older messages that were passed over, to be read in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub skipped: usize,
    pub from_seq: i64,
    pub to_seq: i64,
}

/// The answer to `confirm_messages`: how many were pending until now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    pub confirmed: usize,
}
