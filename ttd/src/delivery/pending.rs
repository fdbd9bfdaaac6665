//! The messages that wait for a member in one room, as a plan and a block want them.

use tt_proto::block::{self, Line};
use tt_proto::event::Event;
use tt_proto::message::MessageSent;
use tt_proto::{AgentId, Error, RoomId};
use tt_rules::{Now, Room};
use tt_store::Reader;

use super::plan::Message;
use super::wakes::Wakes;
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

/// Reads the oldest messages that wait for a member, and the urgent ones. Those whose deadline has passed are left to their timer.
pub fn read(
    room: &Room,
    reader: &dyn Reader,
    agent_id: &AgentId,
    listeners: &Listeners,
    limit: usize,
    now: Now,
) -> Result<Vec<Pending>, Error> {
    let mut rows = reader.open_deliveries(&room.room_id, agent_id, limit)?;
    rows.retain(|row| row.expires_at.is_none_or(|at| at > now.deadline));
    let seqs: Vec<i64> = rows.iter().map(|row| row.event_seq).collect();
    let events = reader.events_by_seq(&seqs)?;
    let wakes = wakes_of(room, reader, &events)?;
    let inbox = (room.room_id.clone(), agent_id.clone());
    let pending = |(event, wakes): (&Event, Wakes)| {
        let row = rows.iter().find(|row| row.event_seq == event.event_seq)?;
        let line = block::message_line(event)?;
        let is_taken = row.is_taken() || listeners.holder(&inbox, row.event_seq).is_some();
        let message = Message { is_taken, ..message_of(event, 0, wakes, line.json.len()) };
        Some(Pending { room_id: room.room_id.clone(), event_seq: event.event_seq, message, line })
    };
    Ok(events.iter().zip(wakes).filter_map(pending).collect())
}

/// A message in one of its recipient's rooms, which nobody has taken. It takes this much of a block.
pub fn message_of(event: &Event, room: usize, wakes: Wakes, bytes: usize) -> Message {
    let payload = payload_of(event).unwrap_or_default();
    let (hint, from_person) = (payload.delivery_hint, payload.from_person);
    Message { event_seq: event.event_seq, room, hint, from_person, wakes, is_taken: false, bytes }
}

/// Whether each of these messages may wake its recipient.
pub fn wakes_of(room: &Room, reader: &dyn Reader, events: &[Event]) -> Result<Vec<Wakes>, Error> {
    let replied_to = replied_to(events);
    let questions = if replied_to.is_empty() { Vec::new() } else { reader.events_by_seq(&replied_to)? };
    Ok(wakes_with(room, &questions, events))
}

/// The messages that these reply to.
pub fn replied_to(events: &[Event]) -> Vec<i64> {
    events.iter().filter_map(|event| payload_of(event)?.reply_to).collect()
}

/// Whether each of these messages may wake its recipient, if these are the messages that they reply to.
pub fn wakes_with(room: &Room, questions: &[Event], events: &[Event]) -> Vec<Wakes> {
    let payloads: Vec<MessageSent> = events.iter().map(|event| payload_of(event).unwrap_or_default()).collect();
    let is_question = |seq: i64| {
        let question = questions.iter().find(|question| question.event_seq == seq);
        question.and_then(payload_of).is_some_and(|payload| payload.expects_reply)
    };
    let wakes = |(event, mut payload): (&Event, MessageSent)| {
        let sender = event.from_agent_id.as_ref().and_then(|from| room.member(from));
        // A reminder is nobody's call at this moment: whose it is shows who set it.
        payload.from_person |= payload.reminder_id.is_some() && sender.is_some_and(|sender| sender.is_person());
        Wakes::of(&payload, event.to_agent_id.is_some(), payload.reply_to.is_some_and(is_question))
    };
    events.iter().zip(payloads).map(wakes).collect()
}

fn payload_of(event: &Event) -> Option<MessageSent> {
    event.payload.as_ref().and_then(|json| serde_json::from_str(json.as_str()).ok())
}
