//! Messages: sent at any time, in the middle of anyone's turn. They grant nothing.

use serde::{Deserialize, Serialize};

use crate::compact::is_zero;
use crate::{Error, ErrorCode, RoomId};

/// The longest body, in bytes of UTF-8.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// How many messages one answer brings at most, and how many bytes of them. The rest stays in the inbox.
pub const MAX_BATCH: usize = 10;
pub const MAX_BATCH_BYTES: usize = 8 * 1024;

/// How urgent the sender thinks a message is. Advice to the receiving side, never authority. The most urgent is the
/// greatest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// It was sent by a person at a terminal with no harness above it in the process tree. Evidence, not proof: an agent could
    /// open a terminal of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_person: bool,
}

/// The messages that wait for a member: how many, and how many of them interrupt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interrupts: usize,
}

impl Unread {
    pub fn is_empty(&self) -> bool {
        self.unread == 0
    }
}

/// A room in which messages wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxRoom {
    pub room_id: RoomId,
    pub unread: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interrupts: usize,
}
