//! Sending messages, and the inbox: take, confirm, return.

use serde::{Deserialize, Serialize};

use super::field::methods;
use crate::compact::is_zero;
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
        /// With more than this many waiting, the older ones are skipped.
        max_replay: Option<usize>,
        /// Past this many, the others stay in the inbox: the most urgent come first, and of those the oldest.
        limit: Option<usize>,
        /// Past this many bytes, the others stay in the inbox. One message is always taken.
        max_bytes: Option<usize>,
        max_wait_ms: Option<u64>,
    }

    /// Returns messages that this connection took and will not show. Others are ignored.
    ReturnMessages = "return_messages" -> Returned {
        room_id: RoomId,
        event_seqs: Vec<i64>,
    }

    /// Confirms that messages were shown. Safe to repeat.
    ConfirmMessages = "confirm_messages" -> Confirmed {
        room_id: RoomId,
        surface: String,
        event_seqs: Vec<i64>,
        skipped: Option<Skipped>,
        /// Confirms skipped messages only if they are from this member.
        from_agent_id: Option<AgentId>,
    }
}

/// The answer to `send_message`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub event_seq: i64,
    pub event_id: EventId,
    pub created_at: WallTime,
    pub recipients: Vec<Recipient>,
}

/// The answer to `list_inbox`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxRooms {
    pub rooms: Vec<InboxRoom>,
}

/// The answer to `take_messages`. The messages belong to this connection until it confirms them; if it closes first, they
/// return to the inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Skipped>,
    pub events: Vec<Event>,
    /// How many messages stayed in the inbox.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
}

/// Older messages that were skipped. They can be read in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub skipped: usize,
    pub from_seq: i64,
    pub to_seq: i64,
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
