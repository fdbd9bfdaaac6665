//! The messages that wait for a member in one room, as a plan and a block want them.

use std::cmp::Reverse;

use tt_proto::block::{self, Line};
use tt_proto::event::Event;
use tt_proto::message::{MAX_BATCH, MessageSent};
use tt_proto::{AgentId, Error, RoomId};
use tt_rules::{DeliveryRow, Now, Room, Wakes};
use tt_store::{OpenQuery, Reader};

use super::plan::Message;
use crate::listeners::Listeners;

/// A message that waits.
#[derive(Debug, Clone)]
pub struct Pending {
    pub room_id: RoomId,
    pub event_seq: i64,
    pub message: Message,
    /// As the model is shown it.
    pub line: Line,
}

/// Messages that wait.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The most urgent of each account on which they wake, as many as one block may have.
    pub pending: Vec<Pending>,
    /// How many there are, as far as they were counted.
    pub count: usize,
}

/// Reads what waits for a member and nobody has taken, so that nothing hides a message that may be handed over while the others
/// may not. Those whose deadline has passed are left to their timer. No line is longer than so many characters.
pub fn read(
    room: &Room,
    reader: &dyn Reader,
    agent_id: &AgentId,
    listeners: &Listeners,
    wanted: OpenQuery,
    max_chars: usize,
    now: Now,
) -> Result<Found, Error> {
    let inbox = (room.room_id.clone(), agent_id.clone());
    // What connections hold comes back or goes, and hides nothing meanwhile.
    let limit = wanted.limit.saturating_add(listeners.held_count(&inbox));
    let mut rows = reader.open_deliveries(&room.room_id, agent_id, &OpenQuery { limit, ..wanted })?;
    let is_free = |row: &DeliveryRow| !row.is_taken() && listeners.holder(&inbox, row.event_seq).is_none();
    rows.retain(|row| row.expires_at.is_none_or(|at| at > now.deadline) && is_free(row));
    let count = rows.len();
    rows.sort_by_key(|row| (Reverse(row.wakes), Reverse(row.delivery_hint), row.event_seq));
    let rows: Vec<DeliveryRow> =
        rows.chunk_by(|a, b| a.wakes == b.wakes).flat_map(|rows| rows.iter().take(MAX_BATCH)).cloned().collect();
    let seqs: Vec<i64> = rows.iter().map(|row| row.event_seq).collect();
    let events = reader.events_by_seq(&seqs)?;
    let pending = |event: &Event| {
        let row = rows.iter().find(|row| row.event_seq == event.event_seq)?;
        let line = block::message_line_within(event, max_chars)?;
        let bytes = line.json.len();
        let sent_at = Some(now.to_lease(event.created_at));
        let message = Message { bytes, sent_at, attempts: row.attempts, ..message_of(event, 0, row.wakes) };
        Some(Pending { room_id: room.room_id.clone(), event_seq: event.event_seq, message, line })
    };
    Ok(Found { pending: events.iter().filter_map(pending).collect(), count })
}

/// A message in one of its recipient's rooms, which nobody has taken or been handed.
pub fn message_of(event: &Event, room: usize, wakes: Wakes) -> Message {
    let payload = event.payload.as_ref().and_then(|json| serde_json::from_str::<MessageSent>(json.as_str()).ok());
    let payload = payload.unwrap_or_default();
    let (hint, from_person) = (payload.delivery_hint, payload.from_person);
    Message {
        event_seq: event.event_seq,
        room,
        hint,
        from_person,
        wakes,
        is_taken: false,
        attempts: 0,
        sent_at: None,
        bytes: 0,
    }
}
