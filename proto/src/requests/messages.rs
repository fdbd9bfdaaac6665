//! Sending messages, and the inbox: take, confirm, return.

use serde::{Deserialize, Serialize};

use super::field::methods;
use super::is_zero;
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
        /// The recipient by what people type: a name, the beginning of an id, or `room` for everyone.
        to: Option<String>,
        /// `normal`, `important` or `interrupt`.
        delivery_hint: Option<String>,
        idempotency_key: Option<String>,
    }

    /// Lists the rooms in which messages wait for the caller. Changes nothing.
    ListInbox = "list_inbox" -> InboxRooms {}

    /// Takes the messages in the caller's inbox, waiting for one if it is empty.
    TakeMessages = "take_messages" -> Taken {
        room_id: RoomId,
        surface: String,
        from_agent_id: Option<AgentId>,
        /// With more than this many waiting, the older ones are skipped. Past 10,000, none are.
        max_replay: Option<usize>,
        /// Past this many, the newer ones stay in the inbox.
        limit: Option<usize>,
        max_wait_ms: Option<u64>,
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

/// The answer to `send_message`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub event_seq: i64,
    pub event_id: EventId,
    pub created_at: WallTime,
    pub recipients: Vec<Recipient>,
    /// How many recipients are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Skipped>,
    /// The numbers of the messages that were skipped. They are this connection's to confirm, like those in `events`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped_seqs: Vec<i64>,
    pub events: Vec<Event>,
    /// How many newer messages stayed in the inbox, counted up to [`MAX_COUNTED`].
    #[serde(default)]
    pub more: usize,
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
