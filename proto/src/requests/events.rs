//! Reading the log: a page of it, the next events, or all of them as they come.

use serde::{Deserialize, Serialize};

use super::Stream;
use super::field::{methods, request};
use crate::compact::{is_false, is_zero};
use crate::delivery::DeliveryState;
use crate::event::Event;
use crate::filter::{EventFilter, OneOrMany};
use crate::{AgentId, RoomId, WallTime};

methods! {
    /// Reads a page of the log, in its order: the first events after a cursor, or without one the newest. Without a target,
    /// everything.
    GetRoomEvents = "get_room_events" -> EventPage {
        room_id: RoomId,
        after_event_seq: Option<i64>,
        limit: Option<usize>,
        event_type: Option<OneOrMany>,
        from_agent_id: Option<AgentId>,
        /// `self`, `any` or an agent id.
        target_agent_id: Option<String>,
        /// The newest of those before this event.
        before_event_seq: Option<i64>,
        since: Option<WallTime>,
        /// Words that must be in the message, the handoff or the reason. The beginning of a word is enough.
        grep: Option<String>,
        /// Only the event with this id, or the only one whose id begins with it.
        event_id: Option<String>,
    }

    /// Answers with the next events that match, waiting for them if there are none. Starts at "now" without a cursor.
    WaitForEvents = "wait_for_events" -> EventPage {
        room_id: RoomId,
        after_event_seq: Option<i64>,
        limit: Option<usize>,
        event_type: Option<OneOrMany>,
        from_agent_id: Option<AgentId>,
        /// `self`, `any` or an agent id.
        target_agent_id: Option<String>,
        max_wait_ms: Option<u64>,
        grep: Option<String>,
    }
}

request! {
    /// Replays the log from the cursor, then follows it, without a gap and without a repetition.
    SubscribeEvents {
        room_id: RoomId,
        after_event_seq: Option<i64>,
        event_type: Option<OneOrMany>,
        from_agent_id: Option<AgentId>,
        /// `self`, `any` or an agent id.
        target_agent_id: Option<String>,
        grep: Option<String>,
    }
}

impl Stream for SubscribeEvents {
    const SUBSCRIBE: &'static str = "subscribe_events";
    const NOTIFICATION: &'static str = "event";
    const UNSUBSCRIBE: &'static str = "unsubscribe_events";
    type Item = EventItem;
}

macro_rules! filtered {
    ($($request:ty: $since:expr),+) => {$(
        impl $request {
            /// Which events the caller wants.
            pub fn filter(&self) -> EventFilter {
                EventFilter {
                    event_type: self.event_type.clone(),
                    from_agent_id: self.from_agent_id.clone(),
                    target_agent_id: self.target_agent_id.clone(),
                    since: $since(self),
                    grep: self.grep.clone(),
                }
            }
        }
    )+};
}

filtered!(GetRoomEvents: |request: &Self| request.since, WaitForEvents: |_| None, SubscribeEvents: |_| None);

/// The answer to `get_room_events` and `wait_for_events`: events, and the cursor to continue from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPage {
    pub events: Vec<Event>,
    pub cursor_event_seq: i64,
    /// How many older events match, on a page of the newest.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub earlier: usize,
    /// Whether there are more than `earlier`, which were not counted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub earlier_is_more: bool,
    /// Whether newer events match, on a page of those after a cursor.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// The messages among them that nobody was handed, and nobody will be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undelivered: Vec<Undelivered>,
}

/// A message that nobody was handed, and nobody will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undelivered {
    pub event_seq: i64,
    /// It expired, or was withdrawn.
    pub state: DeliveryState,
}

impl EventPage {
    /// A page, after which reading goes on at this cursor.
    pub fn new(events: Vec<Event>, cursor_event_seq: i64) -> Self {
        Self { events, cursor_event_seq, earlier: 0, earlier_is_more: false, more: false, undelivered: Vec::new() }
    }

    /// What became of a message of this page, if nobody was handed it.
    pub fn undelivered(&self, event_seq: i64) -> Option<DeliveryState> {
        self.undelivered.iter().find(|message| message.event_seq == event_seq).map(|message| message.state)
    }
}

/// One item of a subscription: an event and the cursor to continue from after it, or the reason why the stream ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventItem {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
    pub cursor_event_seq: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync: Option<Resync>,
    /// The event is a message that nobody was handed: it expired, or was withdrawn, before it was replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undelivered: Option<DeliveryState>,
}

/// Why a subscription ends and what its reader must do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resync {
    /// `room_deleted`: join again and start from the new room's cursor. `stopping`, `storage_unavailable`: subscribe again
    /// from the cursor.
    pub reason: String,
}
