//! Sending: what becomes a message, to whom it goes, and what it answers.

use std::time::Duration;

use tt_proto::delivery::DeliveryState;
use tt_proto::event::EventType;
use tt_proto::handoff::RawJson;
use tt_proto::message::{DeliveryHint, MAX_MESSAGE_BYTES, MessageSent};
use tt_proto::reminder::MAX_AHEAD;
use tt_proto::{AgentId, Error, ErrorCode};

use crate::command::{Recipients, Rows, SendOptions};
use crate::delivery::{DeliveryChange, NewDelivery};
use crate::names;
use crate::room::{EventDraft, Room};
use crate::time::Now;
use crate::wakes::Wakes;

/// What a member sends.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) from: &'a AgentId,
    pub(crate) to: &'a Recipients,
    pub(crate) body: &'a str,
    pub(crate) hint: DeliveryHint,
    pub(crate) from_person: bool,
    pub(crate) options: &'a SendOptions,
}

/// A message that was sent.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Sent {
    pub(crate) opened: Vec<NewDelivery>,
    /// The delivery that it answers.
    pub(crate) answers: Option<DeliveryChange>,
}

/// Adds the event of a message and opens its deliveries.
pub(crate) fn send(room: &mut Room, draft: &Draft<'_>, rows: &Rows, now: Now) -> Result<Sent, Error> {
    room.open()?;
    room.active_member(draft.from)?;
    let replied_to = draft.options.reply_to.map(|seq| replied_to(draft, seq, rows)).transpose()?;
    let to = match (&replied_to, draft.to) {
        (Some(sender), _) => Some(sender.clone()),
        (None, Recipients::Room) => None,
        (None, Recipients::Agent(agent)) => Some(agent.clone()),
        (None, Recipients::Named(name)) => Some(names::resolve_recipient(room, draft.from, name)?.agent_id.clone()),
    };
    check_body(draft.body)?;
    let recipients = recipients(room, draft.from, to.as_ref())?;
    if draft.options.expects_reply {
        check_question(room, draft.from, to.as_ref(), &recipients)?;
    }
    let timeout = timeout(room, draft.options)?;
    check_ahead("notify_after_ms", draft.options.notify_after)?;
    let SendOptions { reply_to, expects_reply, notify_on_delivery, notify_after, .. } = *draft.options;
    let payload = MessageSent {
        body: draft.body.to_owned(),
        delivery_hint: draft.hint,
        from_person: draft.from_person,
        expects_reply,
        reply_to,
        expires_at: timeout.map(|timeout| now.wall + timeout),
        ..MessageSent::default()
    };
    let answers_question = reply_to.is_some() && rows.deliveries.first().is_some_and(|row| row.expects_reply);
    let wakes = Wakes::of(&payload, to.is_some(), answers_question);
    let mut event = EventDraft::new(EventType::MessageSent, room.turn_id, draft.from);
    event.to = to;
    event.payload = Some(RawJson::of(&payload).map_err(|e| Error::new(ErrorCode::InvalidBody, e.to_string()))?);
    room.events.push(event);
    let event = room.events.len() - 1;
    let open = |recipient| NewDelivery {
        event,
        recipient,
        delivery_hint: draft.hint,
        wakes,
        expires_at: timeout.map(|timeout| now.deadline + timeout),
        expects_reply,
        reply_to,
        notify_on_delivery,
        notify_after,
    };
    let answers = replied_to.and_then(|_| answer(rows, event, now));
    Ok(Sent { opened: recipients.into_iter().map(open).collect(), answers })
}

/// To whom a reply goes: the sender of the message that it replies to.
fn replied_to(draft: &Draft<'_>, event_seq: i64, rows: &Rows) -> Result<AgentId, Error> {
    if *draft.to != Recipients::Room {
        let message = "a reply goes to the sender of the message it replies to";
        return Err(Error::new(ErrorCode::InvalidInput, message).hint("leave out the recipient, or reply_to"));
    }
    let unknown = || Error::new(ErrorCode::UnknownMessage, format!("there is no message {event_seq} in this room"));
    let message = rows.message.as_ref().ok_or_else(unknown).map_err(|e| e.detail("event_seq", event_seq))?;
    if rows.deliveries.is_empty() {
        return Err(Error::new(ErrorCode::NotARecipient, format!("message {event_seq} was not sent to you"))
            .detail("event_seq", event_seq));
    }
    message.from.clone().ok_or_else(|| {
        Error::new(ErrorCode::NotARecipient, format!("{event_seq} is a notice; nobody sent it"))
            .hint("write to a member instead")
            .detail("event_seq", event_seq)
    })
}

fn recipients(room: &Room, from: &AgentId, to: Option<&AgentId>) -> Result<Vec<AgentId>, Error> {
    match to {
        Some(to) if room.member(to).is_none() => {
            Err(Error::new(ErrorCode::UnknownRecipient, format!("{to} has never been a member of this room"))
                .detail("agent_id", to.as_str()))
        }
        Some(to) => Ok(vec![to.clone()]),
        None => {
            let others = room.members().filter(|m| m.status.is_addressed() && m.agent_id != *from);
            Ok(others.map(|m| m.agent_id.clone()).collect())
        }
    }
}

/// A question needs somebody who can answer it.
fn check_question(room: &Room, from: &AgentId, to: Option<&AgentId>, recipients: &[AgentId]) -> Result<(), Error> {
    if to == Some(from) {
        return Err(Error::new(ErrorCode::InvalidInput, "that is a question to yourself")
            .hint("ask another member, or set yourself a reminder: tt remind"));
    }
    if let Some(removed) = to.filter(|to| room.member(to).is_some_and(|member| !member.status.is_member())) {
        let message = format!("{removed} is not a member of this room any more and cannot answer");
        return Err(Error::new(ErrorCode::UnknownRecipient, message).detail("agent_id", removed.as_str()));
    }
    if let Some(gone) = to.filter(|to| room.member(to).is_some_and(|member| !member.status.is_addressed())) {
        let message = format!("{gone} is gone: its process ended, and nobody would answer");
        return Err(Error::new(ErrorCode::UnknownRecipient, message)
            .hint("leave it a message, which it gets if its session is resumed: tt msg send")
            .detail("agent_id", gone.as_str()));
    }
    if recipients.is_empty() {
        return Err(Error::new(ErrorCode::UnknownRecipient, "nobody else is here to answer"));
    }
    Ok(())
}

/// How long the message may wait; none for ever.
fn timeout(room: &Room, options: &SendOptions) -> Result<Option<Duration>, Error> {
    check_ahead("timeout_ms", options.timeout)?;
    let policy = &room.policy;
    Ok(match options.timeout {
        Some(timeout) => Some(timeout),
        None if options.expects_reply => Some(policy.ask_expiry),
        None => Some(policy.message_timeout).filter(|timeout| !timeout.is_zero()),
    })
}

/// Refuses a time that is so far away that it is a mistake, or no time at all.
pub(crate) fn check_ahead(field: &str, time: Option<Duration>) -> Result<(), Error> {
    match time {
        Some(time) if time.is_zero() || time > MAX_AHEAD => {
            let message = format!("{field} must be between 1 and {}", MAX_AHEAD.as_millis());
            Err(Error::new(ErrorCode::InvalidInput, message).hint("use a time between a millisecond and a year"))
        }
        _ => Ok(()),
    }
}

/// The caller's delivery of the message that it replies to is answered by this event, unless it was answered before, or was
/// never handed over.
fn answer(rows: &Rows, event: usize, now: Now) -> Option<DeliveryChange> {
    let row = rows.deliveries.first()?;
    if !matches!(row.state, DeliveryState::Pending | DeliveryState::Delivered) {
        return None;
    }
    let mut change = DeliveryChange::new(row, DeliveryState::Answered, now.wall);
    change.answered_by = Some(event);
    change.is_late = row.is_over || row.expects_reply && row.expires_at.is_some_and(|at| at <= now.deadline);
    Some(change)
}

pub(crate) fn check_body(body: &str) -> Result<(), Error> {
    if body.trim().is_empty() {
        return Err(Error::new(ErrorCode::InvalidBody, "the message is blank"));
    }
    if body.len() > MAX_MESSAGE_BYTES {
        return Err(Error::new(
            ErrorCode::MessageTooLarge,
            format!("the message has {} bytes; at most {MAX_MESSAGE_BYTES} are allowed", body.len()),
        )
        .detail("bytes", body.len())
        .detail("max_bytes", MAX_MESSAGE_BYTES));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tt_proto::room::MemberStatus;

    use super::*;
    use crate::delivery::{DeliveryRow, MessageRow};
    use crate::testing::{id, now, room};

    fn draft<'a>(from: &'a str, to: &'a Recipients, body: &'a str, options: &'a SendOptions) -> Draft<'a> {
        let from = Box::leak(Box::new(id(from)));
        Draft { from, to, body, hint: DeliveryHint::Normal, from_person: false, options }
    }

    fn send_to(room: &mut Room, to: Option<&str>, body: &str) -> Result<Vec<String>, ErrorCode> {
        let to = to.map_or(Recipients::Room, |to| Recipients::Agent(id(to)));
        let options = SendOptions::default();
        let draft = draft("a", &to, body, &options);
        let sent = send(room, &draft, &Rows::default(), now(0));
        sent.map(|sent| sent.opened.iter().map(|d| d.recipient.to_string()).collect()).map_err(|e| e.code)
    }

    #[test]
    fn a_broadcast_goes_to_the_others_who_are_there_or_away() {
        let mut room = room(&["a", "b", "c", "d"]);
        room.member_mut(&id("c")).unwrap().status = MemberStatus::Gone;
        room.member_mut(&id("d")).unwrap().status = MemberStatus::Away;
        assert_eq!(send_to(&mut room, None, "hi").unwrap(), ["b", "d"], "a person that is away reads it later");
        assert_eq!(send_to(&mut room, Some("c"), "hi").unwrap(), ["c"], "an absent member by its id");
        assert_eq!(send_to(&mut room, Some("a"), "note to self").unwrap(), ["a"]);
        assert_eq!(send_to(&mut room, Some("x"), "hi"), Err(ErrorCode::UnknownRecipient));
        assert_eq!(room.events.len(), 3, "one event each");
    }

    #[test]
    fn bodies_are_counted_in_bytes_and_never_trimmed() {
        let mut room = room(&["a", "b"]);
        for blank in ["", " \n\t "] {
            assert_eq!(send_to(&mut room, None, blank), Err(ErrorCode::InvalidBody), "{blank:?}");
        }
        send_to(&mut room, None, " hi \n").unwrap();
        let payload = room.events.last().unwrap().payload.clone().unwrap();
        assert!(payload.as_str().contains(r#"" hi \n""#), "what is not blank is sent as it is: {payload:?}");
        assert!(send_to(&mut room, None, &"ü".repeat(2048)).is_ok());
        assert_eq!(send_to(&mut room, None, &format!("{}x", "ü".repeat(2048))), Err(ErrorCode::MessageTooLarge));
        let body = "NUL \0, escape \x1b[2J, right-to-left \u{202e}";
        send_to(&mut room, None, body).unwrap();
        let payload = room.events.last().unwrap().payload.clone().unwrap();
        assert_eq!(serde_json::from_str::<MessageSent>(payload.as_str()).unwrap().body, body);
    }

    #[test]
    fn only_a_member_of_an_open_room_may_speak() {
        let mut room = room(&["b"]);
        assert_eq!(send_to(&mut room, None, "hi"), Err(ErrorCode::UnknownMember));
        let mut room = crate::testing::room(&["a"]);
        room.state = tt_proto::room::StickState::Closed;
        assert_eq!(send_to(&mut room, None, "hi"), Err(ErrorCode::RoomClosed));
    }

    /// The rows of message 7, which `from` sent to `b`.
    fn replied_to(from: Option<&str>, row: Option<DeliveryRow>) -> Rows {
        let message = Some(MessageRow { from: from.map(id) });
        Rows { message, deliveries: row.into_iter().collect(), ..Rows::default() }
    }

    fn question(state: DeliveryState) -> DeliveryRow {
        let from = Some(id("a"));
        DeliveryRow { event_seq: 7, recipient: id("b"), from, state, expects_reply: true, ..DeliveryRow::default() }
    }

    #[test]
    fn a_reply_goes_to_the_sender_and_answers_the_question_once() {
        let reply = |row: DeliveryRow| {
            let options = SendOptions { reply_to: Some(7), ..SendOptions::default() };
            let draft = draft("b", &Recipients::Room, "yes", &options);
            send(&mut room(&["a", "b", "c"]), &draft, &replied_to(Some("a"), Some(row)), now(9)).unwrap()
        };
        for state in [DeliveryState::Pending, DeliveryState::Delivered] {
            let sent = reply(question(state));
            assert_eq!(sent.opened.iter().map(|d| d.recipient.as_str()).collect::<Vec<_>>(), ["a"]);
            assert_eq!(sent.opened[0].reply_to, Some(7));
            let change = sent.answers.unwrap();
            assert_eq!((change.before, change.after.state), (state, DeliveryState::Answered));
            assert_eq!((change.answered_by, change.is_late), (Some(0), false));
        }
        assert!(reply(DeliveryRow { is_over: true, ..question(DeliveryState::Delivered) }).answers.unwrap().is_late);
        let due = DeliveryRow { expires_at: Some(now(9).deadline), ..question(DeliveryState::Delivered) };
        assert!(reply(due).answers.unwrap().is_late, "at the deadline it is too late");
        for state in [DeliveryState::Answered, DeliveryState::Expired, DeliveryState::Withdrawn] {
            assert_eq!(reply(question(state)).answers, None, "what is final stays as it is");
        }
    }

    #[test]
    fn a_reply_to_what_is_not_mine_changes_nothing() {
        let refused = |rows: Rows, to: Recipients| {
            let options = SendOptions { reply_to: Some(7), ..SendOptions::default() };
            let mut room = room(&["a", "b"]);
            let refused = send(&mut room, &draft("b", &to, "yes", &options), &rows, now(0)).unwrap_err();
            assert!(room.events.is_empty());
            refused.code
        };
        assert_eq!(refused(Rows::default(), Recipients::Room), ErrorCode::UnknownMessage);
        assert_eq!(refused(replied_to(Some("a"), None), Recipients::Room), ErrorCode::NotARecipient);
        let notice = DeliveryRow { from: None, ..question(DeliveryState::Delivered) };
        assert_eq!(refused(replied_to(None, Some(notice)), Recipients::Room), ErrorCode::NotARecipient);
        let mine = || replied_to(Some("a"), Some(question(DeliveryState::Delivered)));
        assert_eq!(refused(mine(), Recipients::Agent(id("a"))), ErrorCode::InvalidInput, "who gets it is settled");
    }

    #[test]
    fn a_question_needs_somebody_else_who_can_answer() {
        let ask = |room: &mut Room, to: Recipients, timeout: Option<u64>| {
            let timeout = timeout.map(Duration::from_secs);
            let options = SendOptions { expects_reply: true, timeout, ..SendOptions::default() };
            let sent = send(room, &draft("a", &to, "why?", &options), &Rows::default(), now(0));
            sent.map(|sent| sent.opened[0].expires_at.unwrap()).map_err(|e| e.code)
        };
        let named = |name: &str| Recipients::Named(name.into());
        let mut two = room(&["a", "b"]);
        assert_eq!(ask(&mut two, named("b"), None), Ok(now(300).deadline), "as the policy says");
        assert_eq!(ask(&mut two, Recipients::Room, Some(20)), Ok(now(20).deadline));
        assert_eq!(ask(&mut two, named("a"), None), Err(ErrorCode::InvalidInput), "oneself");
        assert_eq!(ask(&mut two, named("b"), Some(0)), Err(ErrorCode::InvalidInput));
        assert_eq!(ask(&mut two, named("b"), Some(1 << 40)), Err(ErrorCode::InvalidInput));
        assert_eq!(ask(&mut room(&["a"]), Recipients::Room, None), Err(ErrorCode::UnknownRecipient));
        two.member_mut(&id("b")).unwrap().status = MemberStatus::Left;
        assert_eq!(ask(&mut two, Recipients::Agent(id("b")), None), Err(ErrorCode::UnknownRecipient));
        two.member_mut(&id("b")).unwrap().status = MemberStatus::Gone;
        assert_eq!(ask(&mut two, Recipients::Agent(id("b")), None), Err(ErrorCode::UnknownRecipient), "it would wait");
        two.member_mut(&id("b")).unwrap().status = MemberStatus::Away;
        assert!(ask(&mut two, Recipients::Agent(id("b")), None).is_ok(), "a person comes back");
    }
}
