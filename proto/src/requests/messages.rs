//! Sending messages, and the inbox: take, confirm, return.

use serde::{Deserialize, Serialize};

use super::field::methods;
use crate::compact::{is_false, is_zero};
use crate::delivery::Recipient;
use crate::event::Event;
use crate::message::InboxRoom;
use crate::{AgentId, EventId, RoomId, WallTime};

methods! {
    /// Sends a message. Without a recipient it goes to every active member.
    SendMessage = "send_message" -> Sent {
        room_id: RoomId,
        body: String,
        to_agent_id: Option<AgentId>,
        /// The recipient by what people type: a name, the beginning of an id, or `room`, `all` or `everyone`.
        to: Option<String>,
        /// `idle`, `normal`, `important` or `interrupt`.
        delivery_hint: Option<String>,
        idempotency_key: Option<String>,
        /// The message that this one replies to; it goes to the sender of that one.
        reply_to: Option<i64>,
        /// It is a question.
        expects_reply: Option<bool>,
        /// Not handed over by then, it expires. For a question, also how long an answer is waited for.
        timeout_ms: Option<u64>,
        /// Whether the sender gets a notice once it was handed over.
        notify_on_delivery: Option<bool>,
        /// The sender gets a notice if there is no answer this long after it was handed over.
        notify_after_ms: Option<u64>,
        /// Of a question: waits this long for what `take_messages` brings `about` it.
        wait_ms: Option<u64>,
    }

    /// Answers a message: it goes to its sender.
    Reply = "reply" -> Sent {
        room_id: RoomId,
        /// The message that is answered.
        event_seq: i64,
        body: String,
        idempotency_key: Option<String>,
    }

    /// Takes a message back from those to whom it was not handed over yet.
    WithdrawMessage = "withdraw_message" -> Withdrawn {
        room_id: RoomId,
        event_seq: i64,
        idempotency_key: Option<String>,
    }

    /// Lists the rooms in which messages wait for the caller. Changes nothing.
    ListInbox = "list_inbox" -> InboxRooms {}

    /// Takes the messages in the caller's inbox, waiting for one if it is empty. A person takes nothing: all of its connections
    /// may be shown the messages, and any of them may confirm.
    TakeMessages = "take_messages" -> Taken {
        room_id: RoomId,
        surface: String,
        from_agent_id: Option<AgentId>,
        /// With more than this many waiting, the older ones are skipped. Past 10,000, none are.
        max_replay: Option<usize>,
        /// Past this many, the others stay in the inbox: the most urgent come first, and of those the oldest.
        limit: Option<usize>,
        /// Past this many bytes, the others stay in the inbox. One message is always taken.
        max_bytes: Option<usize>,
        max_wait_ms: Option<u64>,
        /// Only for people: the messages to the caller in the log after this event, whether or not they were confirmed.
        after_event_seq: Option<i64>,
        /// Only what concerns this question of the caller: answers to it, notices about it, and questions of those it asked.
        /// Ends the wait as well once there is nothing more to wait for.
        about: Option<i64>,
    }

    /// Returns messages that this connection took and will not show. Refused as a whole if another connection holds one of
    /// them. Those that nobody holds are ignored.
    ReturnMessages = "return_messages" -> Returned {
        room_id: RoomId,
        event_seqs: Vec<i64>,
    }

    /// Confirms that messages were shown, or skipped. Safe to repeat. Refused as a whole if another connection holds one of
    /// them: that one shows and confirms it.
    ConfirmMessages = "confirm_messages" -> Confirmed {
        room_id: RoomId,
        surface: String,
        event_seqs: Vec<i64>,
    }
}

/// The answer to `send_message` and `reply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub event_seq: i64,
    pub event_id: EventId,
    pub created_at: WallTime,
    pub recipients: Vec<Recipient>,
    /// How many recipients are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
    /// What came about a question, if it was waited for. It is the caller's to confirm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Taken>,
}

/// The answer to `withdraw_message`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawn {
    pub event_seq: i64,
    /// From how many recipients it was taken back.
    pub withdrawn: usize,
    /// How many have it, or are being handed it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub too_late: usize,
}

/// The answer to `list_inbox`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxRooms {
    pub rooms: Vec<InboxRoom>,
    /// Whether there are rooms that are not listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// The answer to `take_messages`. The messages belong to this connection until it confirms them; if it closes first, they
/// return to the inbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Skipped>,
    /// The numbers of the messages that were skipped. They are this connection's to confirm, like those in `events`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped_seqs: Vec<i64>,
    pub events: Vec<Event>,
    /// How many newer messages stayed in the inbox, counted up to [`MAX_COUNTED`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
    /// Only for people: the event after which to read on in the log. It holds once the inbox is read; with `more`, the rest
    /// is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor_event_seq: Option<i64>,
    /// Only with `about`: the question needs no more waiting.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_over: bool,
}

/// The most messages that one confirmation or return lists, and that one take skips.
pub const MAX_LISTED: usize = 10_000;

/// How far the messages that stay in an inbox are counted.
pub const MAX_COUNTED: usize = 1000;

/// Older messages that were skipped, for people. They can be read in the log. Messages that another surface holds may be in
/// this range, so nothing is confirmed by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub skipped: usize,
    pub from_seq: i64,
    pub to_seq: i64,
}

impl Skipped {
    /// Describes messages by their numbers, which are in ascending order.
    pub fn of(event_seqs: &[i64]) -> Option<Self> {
        let (from_seq, to_seq) = (*event_seqs.first()?, *event_seqs.last()?);
        Some(Self { skipped: event_seqs.len(), from_seq, to_seq })
    }
}

/// The answer to `return_messages`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// How many messages returned to the inbox.
    pub returned: usize,
}

/// The answer to `confirm_messages`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// How many of the messages were pending before.
    pub confirmed: usize,
}
