//! How far messages have come.

use serde::{Deserialize, Serialize};

use super::Stream;
use super::field::{methods, request};
use crate::compact::is_false;
use crate::delivery::{Delivery, DeliveryChanged, Recipient};
use crate::event::Event;
use crate::{RoomId, WallTime};

methods! {
    /// Shows a message and how it stands with each recipient.
    GetMessageStatus = "get_message_status" -> MessageStatus {
        room_id: RoomId,
        event_seq: i64,
    }

    /// Lists messages that wait, oldest first, each with the reason.
    ListWaiting = "list_waiting" -> DeliveryList {
        room_id: RoomId,
        /// For whom they wait: the caller, unless it says another. `room` for everybody.
        to: Option<String>,
        /// Only questions, also those that were handed over and not answered yet.
        questions: Option<bool>,
        limit: Option<usize>,
    }

    /// Lists the newest messages of the caller, newest first, with their recipients.
    ListSent = "list_sent" -> DeliveryList {
        room_id: RoomId,
        /// Only those before this one.
        before: Option<i64>,
        limit: Option<usize>,
    }

    /// Asks that nothing wakes the caller in this room for a while. Messages come with what it does by itself. Without a time
    /// it ends.
    SetQuiet = "set_quiet" -> Quiet {
        room_id: RoomId,
        for_ms: Option<u64>,
        idempotency_key: Option<String>,
    }
}

request! {
    /// Streams the changes of deliveries in a room from now on.
    SubscribeDeliveries {
        room_id: RoomId,
        /// `self`: to the caller and from it. `any`: all of the room.
        target_agent_id: Option<String>,
    }
}

impl Stream for SubscribeDeliveries {
    const SUBSCRIBE: &'static str = "subscribe_deliveries";
    const NOTIFICATION: &'static str = "deliveries";
    const UNSUBSCRIBE: &'static str = "unsubscribe_deliveries";
    type Item = DeliveryItem;
}

/// The answer to `get_message_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageStatus {
    pub event: Event,
    pub recipients: Vec<Recipient>,
    /// Whether there are recipients that are not listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// The answer to `list_waiting` and `list_sent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryList {
    pub deliveries: Vec<Delivery>,
    /// Whether there are more.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// The answer to `set_quiet`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_until: Option<WallTime>,
}

/// One item of `subscribe_deliveries`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryItem {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryChanged>,
    /// Changes were missed, or the stream ended: ask for the state again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync: Option<super::Resync>,
}
