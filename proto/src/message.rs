//! Messages: sent at any time, in the middle of anyone's turn. They grant nothing.

use serde::{Deserialize, Serialize};

use crate::compact::{is_false, is_zero};
use crate::{Error, ErrorCode, ReminderId, RoomId, WallTime};

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
    /// Not while the recipient works: at the end of its turn.
    Idle,
    #[default]
    Normal,
    Important,
    Interrupt,
}

impl DeliveryHint {
    pub const ALL: &[DeliveryHint] = &[Self::Idle, Self::Normal, Self::Important, Self::Interrupt];

    pub const fn as_str(self) -> &'static str {
        match self {
            DeliveryHint::Idle => "idle",
            DeliveryHint::Normal => "normal",
            DeliveryHint::Important => "important",
            DeliveryHint::Interrupt => "interrupt",
        }
    }

    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::ALL
            .iter()
            .copied()
            .find(|hint| hint.as_str() == text)
            .ok_or_else(|| Error::new(ErrorCode::InvalidDeliveryHint, format!("there is no delivery hint {text:?}")))
    }
}

/// The payload of `message_sent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSent {
    pub body: String,
    pub delivery_hint: DeliveryHint,
    /// It was sent by a person at a terminal with no harness above it in the process tree. Evidence, not proof: an agent could
    /// open a terminal of its own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub from_person: bool,
    /// It is a question: its sender wants an answer.
    #[serde(default, skip_serializing_if = "is_false")]
    pub expects_reply: bool,
    /// The message that this one replies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<i64>,
    /// Not handed over by then, it expires; a question is over then, answered or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WallTime>,
    /// It comes from the daemon and from nobody else, and this is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Notice>,
    /// The message that a notice is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<i64>,
    /// It was written earlier, to be sent at this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder_id: Option<ReminderId>,
    /// For how long a notice or a reminder was overdue: nobody was there to send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
}

/// What a notice tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// Your message was handed over.
    Delivered,
    /// Your message was handed over, and no answer came in the time you gave.
    NotAnswered,
    /// Your message was not handed over in time.
    Expired,
    /// The member you asked left, was removed, or is gone.
    RecipientGone,
    /// Another member took the stick from you.
    TakenOver,
    /// Another member removed you from the room.
    Kicked,
    /// Another member committed or pushed while you had the stick, and said that it would in any case.
    GuardOverridden,
    /// A notice of a newer version.
    #[serde(other)]
    Unknown,
}

impl Notice {
    /// The notices a daemon writes. `Unknown` is none of them.
    pub const ALL: &[Notice] = &[
        Self::Delivered,
        Self::NotAnswered,
        Self::Expired,
        Self::RecipientGone,
        Self::TakenOver,
        Self::Kicked,
        Self::GuardOverridden,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Notice::Delivered => "delivered",
            Notice::NotAnswered => "not_answered",
            Notice::Expired => "expired",
            Notice::RecipientGone => "recipient_gone",
            Notice::TakenOver => "taken_over",
            Notice::Kicked => "kicked",
            Notice::GuardOverridden => "guard_overridden",
            Notice::Unknown => "unknown",
        }
    }
}

/// How many characters of a message an excerpt has.
pub const EXCERPT_CHARS: usize = 80;

/// The first characters of a body, on one line.
pub fn excerpt(body: &str) -> String {
    let words: Vec<&str> = body.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(EXCERPT_CHARS) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
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
