//! Notices: short messages from nobody, which tell a member what became of something it did. They are dropped if it is not there.

use std::time::Duration;

use tt_proto::AgentId;
use tt_proto::event::EventType;
use tt_proto::handoff::RawJson;
use tt_proto::message::{MessageSent, Notice};

use crate::delivery::{DeliveryRow, NewDelivery};
use crate::names;
use crate::room::{EventDraft, Room};

/// A notice or a reminder that is sent this much later than it was due says so.
const NOTICEABLY_LATE: Duration = Duration::from_secs(1);

/// The most recipients that a notice names.
const MAX_NAMED: usize = 3;

/// Tells the sender of a message what became of it with these recipients.
pub(crate) fn about(room: &mut Room, notice: Notice, rows: &[&DeliveryRow], late: Duration) -> Option<NewDelivery> {
    let first = rows.first()?;
    let sender = first.from.clone()?;
    room.member(&sender).filter(|member| member.status.is_addressed())?;
    let who = names_of(room, rows);
    let (seq, excerpt) = (first.event_seq, &first.excerpt);
    let what = if first.expects_reply { "question" } else { "message" };
    let text = match notice {
        Notice::Delivered => format!("{who} was handed your {what} {seq}: {excerpt}"),
        Notice::NotAnswered => format!("{who} was handed your {what} {seq} and did not answer in time: {excerpt}"),
        Notice::Expired => format!("{who} was not handed your {what} {seq} in time; it expired: {excerpt}"),
        _ => format!("{who} is not there any more to answer your {what} {seq}: {excerpt}"),
    };
    let payload = MessageSent { about: Some(seq), ..payload(notice, text, late) };
    Some(push(room, sender, &payload))
}

/// Tells a member what another did to it.
pub(crate) fn tell(room: &mut Room, to: &AgentId, notice: Notice, text: String) -> NewDelivery {
    push(room, to.clone(), &payload(notice, text, Duration::ZERO))
}

/// For how long something was overdue, if that is worth saying.
pub(crate) fn late_ms(late: Duration) -> Option<u64> {
    (late >= NOTICEABLY_LATE).then(|| u64::try_from(late.as_millis()).unwrap_or(u64::MAX))
}

fn payload(notice: Notice, body: String, late: Duration) -> MessageSent {
    MessageSent { body, notice: Some(notice), late_ms: late_ms(late), ..MessageSent::default() }
}

fn push(room: &mut Room, to: AgentId, payload: &MessageSent) -> NewDelivery {
    room.events.push(EventDraft {
        event_type: EventType::MessageSent,
        turn_id: Some(room.turn_id),
        from: None,
        to: Some(to.clone()),
        handoff: None,
        reason: None,
        payload: RawJson::of(payload).ok(),
    });
    // Found like a reply, by a caller that waits for what becomes of the message.
    NewDelivery { event: room.events.len() - 1, recipient: to, reply_to: payload.about, ..NewDelivery::default() }
}

fn names_of(room: &Room, rows: &[&DeliveryRow]) -> String {
    let name = |row: &&DeliveryRow| {
        let name = names::unique_name(room, &row.recipient);
        name.unwrap_or(row.recipient.as_str()).to_owned()
    };
    let named: Vec<String> = rows.iter().take(MAX_NAMED).map(name).collect();
    match rows.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        others => format!("{} and {others} more", named.join(", ")),
    }
}
