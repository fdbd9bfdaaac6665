//! What happens to a message: sent, taken by a surface, confirmed, returned, expired.
//!
//! A message is one event and, for each recipient, one delivery. A surface takes open deliveries for its connection, shows
//! them, and confirms them. Taking is not stored: a connection or a daemon that ends gives back what it took.

use std::time::Duration;

use tt_proto::delivery::{DeliveryState, Surface};
use tt_proto::event::EventType;
use tt_proto::handoff::RawJson;
use tt_proto::message::{DeliveryHint, MAX_MESSAGE_BYTES, MessageSent};
use tt_proto::requests::{MAX_COUNTED, MAX_LISTED};
use tt_proto::room::MemberStatus;
use tt_proto::{AgentId, Error, ErrorCode, WallTime};

use crate::command::{ConnectionId, OpenDelivery, Recipients};
use crate::effect::Effect;
use crate::names;
use crate::room::{EventDraft, Room};
use crate::time::DeadlineTime;

/// The most messages that are taken at once.
pub const MAX_TAKE: usize = 200;

/// How soon a message that could not expire because a connection holds it is looked at again.
const HELD_RETRY: Duration = Duration::from_secs(1);

/// A delivery that a command opens, for the event it adds.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDelivery {
    /// The index of the event among those the command adds.
    pub event: usize,
    pub recipient: AgentId,
    pub expires_at: Option<DeadlineTime>,
}

/// A new state of a delivery that was open.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryChange {
    pub event_seq: i64,
    pub recipient: AgentId,
    pub state: DeliveryState,
    pub surface: Option<Surface>,
    pub at: WallTime,
}

/// Messages that a surface took.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Taken {
    pub(crate) skipped: Vec<i64>,
    pub(crate) event_seqs: Vec<i64>,
    pub(crate) more: usize,
    pub(crate) effect: Option<Effect>,
}

/// Adds the event of a message and returns its recipients.
pub(crate) fn send(
    room: &mut Room,
    from: &AgentId,
    to: &Recipients,
    body: &str,
    hint: DeliveryHint,
) -> Result<Vec<AgentId>, Error> {
    room.open()?;
    room.active_member(from)?;
    let to = match to {
        Recipients::Room => None,
        Recipients::Agent(agent) => Some(agent.clone()),
        Recipients::Named(name) => Some(names::resolve(room, name)?.agent_id.clone()),
    };
    check_body(body)?;
    let recipients = match &to {
        Some(to) if room.member(to).is_none() => {
            return Err(Error::new(ErrorCode::UnknownRecipient, format!("{to} has never been a member of this room"))
                .detail("agent_id", to.as_str()));
        }
        Some(to) => vec![to.clone()],
        None => {
            let others = room.members().filter(|m| m.status == MemberStatus::Active && m.agent_id != *from);
            others.map(|m| m.agent_id.clone()).collect()
        }
    };
    let payload = MessageSent { body: body.to_owned(), delivery_hint: hint };
    let mut event = EventDraft::new(EventType::MessageSent, room.turn_id, from);
    event.to = to;
    event.payload = Some(RawJson::of(&payload).map_err(|e| Error::new(ErrorCode::InvalidBody, e.to_string()))?);
    room.events.push(event);
    Ok(recipients)
}

fn check_body(body: &str) -> Result<(), Error> {
    if body.is_empty() {
        return Err(Error::new(ErrorCode::InvalidBody, "the message is empty"));
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

/// Takes the open deliveries that no connection holds, oldest first. With more than `max_replay` of them the older ones are
/// skipped (and held too, so that they can be confirmed as skipped); past `limit` the newer ones stay. With more to skip than
/// one confirmation can list, nothing is shown yet: the next take goes on.
pub(crate) fn take(
    open: &[OpenDelivery],
    connection: ConnectionId,
    recipient: &AgentId,
    max_replay: Option<usize>,
    limit: usize,
) -> Taken {
    let free: Vec<i64> = open.iter().filter(|d| d.held_by.is_none()).map(|d| d.event_seq).collect();
    let skip = max_replay.map_or(0, |max| free.len().saturating_sub(max));
    let limit = if skip > MAX_LISTED { 0 } else { limit.min(MAX_TAKE) };
    let (old, new) = free.split_at(skip.min(MAX_LISTED));
    let mine = &new[..new.len().min(limit)];
    let held = || [old, mine].concat();
    let hold = || Effect::Hold { connection, agent_id: recipient.clone(), event_seqs: held() };
    Taken {
        skipped: old.to_vec(),
        event_seqs: mine.to_vec(),
        more: (new.len() - mine.len()).min(MAX_COUNTED),
        effect: (!old.is_empty() || !mine.is_empty()).then(hold),
    }
}

/// Refuses a list of messages of which another connection holds one: nobody confirms or returns for another. `open` are those
/// of them that are open.
pub(crate) fn check_listed(open: &[OpenDelivery], connection: ConnectionId, event_seqs: &[i64]) -> Result<(), Error> {
    if event_seqs.len() > MAX_LISTED {
        let message = format!("{} messages are listed; at most {MAX_LISTED} are allowed", event_seqs.len());
        return Err(Error::new(ErrorCode::InvalidInput, message).hint("list them in several calls"));
    }
    let is_anothers = |delivery: &&OpenDelivery| delivery.held_by.is_some_and(|holder| holder != connection);
    let held: Vec<i64> = open.iter().filter(is_anothers).map(|delivery| delivery.event_seq).collect();
    if held.is_empty() {
        return Ok(());
    }
    let message = "another connection has taken one of these messages; nothing was changed";
    Err(Error::new(ErrorCode::MessageHeld, message).detail("event_seqs", held))
}

/// Marks messages as delivered that were shown, or skipped.
pub(crate) fn confirm(
    open: &[OpenDelivery],
    connection: ConnectionId,
    recipient: &AgentId,
    surface: Surface,
    event_seqs: &[i64],
    now: WallTime,
) -> (Vec<DeliveryChange>, Effect) {
    let change = |delivery: &OpenDelivery| DeliveryChange {
        event_seq: delivery.event_seq,
        recipient: recipient.clone(),
        state: DeliveryState::Delivered,
        surface: Some(surface),
        at: now,
    };
    // What was confirmed before need not be held any longer either.
    let event_seqs = event_seqs.to_vec();
    let effect = Effect::LetGo { connection, agent_id: recipient.clone(), event_seqs, offer: false };
    (open.iter().map(change).collect(), effect)
}

/// Gives back messages that this connection took. Returns how many of them are open. One that was confirmed elsewhere in
/// the meantime is not held any longer either.
pub(crate) fn give_back(
    open: &[OpenDelivery],
    connection: ConnectionId,
    recipient: &AgentId,
    event_seqs: &[i64],
) -> (usize, Effect) {
    let returned = open.iter().filter(|delivery| delivery.held_by == Some(connection)).count();
    let event_seqs = event_seqs.to_vec();
    let effect = Effect::LetGo { connection, agent_id: recipient.clone(), event_seqs, offer: returned > 0 };
    (returned, effect)
}

/// Expires the open deliveries of a message whose deadline has passed. One that a connection holds may be on a screen
/// already and is not expired.
pub(crate) fn expire(open: &[OpenDelivery], deadline: DeadlineTime, now: WallTime) -> Vec<DeliveryChange> {
    let due = |d: &&OpenDelivery| d.held_by.is_none() && d.expires_at.is_some_and(|at| at <= deadline);
    open.iter()
        .filter(due)
        .map(|delivery| DeliveryChange {
            event_seq: delivery.event_seq,
            recipient: delivery.recipient.clone(),
            state: DeliveryState::Expired,
            surface: None,
            at: now,
        })
        .collect()
}

/// When to look again at a message that did not expire: its deadline is still to come, or a connection holds it.
pub(crate) fn expire_again(open: &[OpenDelivery], now: DeadlineTime) -> Option<DeadlineTime> {
    let again = |at: DeadlineTime, held: bool| if at > now { Some(at) } else { held.then(|| now + HELD_RETRY) };
    open.iter().filter_map(|d| again(d.expires_at?, d.held_by.is_some())).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{id, room};

    fn send_to(room: &mut Room, to: Option<&str>, body: &str) -> Result<Vec<String>, ErrorCode> {
        let to = to.map_or(Recipients::Room, |to| Recipients::Agent(id(to)));
        let sent = send(room, &id("a"), &to, body, DeliveryHint::Normal);
        sent.map(|to| to.iter().map(ToString::to_string).collect()).map_err(|e| e.code)
    }

    #[test]
    fn a_broadcast_goes_to_the_others_who_are_there() {
        let mut room = room(&["a", "b", "c", "d"]);
        room.member_mut(&id("c")).unwrap().status = MemberStatus::Gone;
        assert_eq!(send_to(&mut room, None, "hi").unwrap(), ["b", "d"]);
        assert_eq!(send_to(&mut room, Some("c"), "hi").unwrap(), ["c"], "an absent member by its id");
        assert_eq!(send_to(&mut room, Some("a"), "note to self").unwrap(), ["a"]);
        assert_eq!(send_to(&mut room, Some("x"), "hi"), Err(ErrorCode::UnknownRecipient));
        assert_eq!(room.events.len(), 3, "one event each");
    }

    #[test]
    fn bodies_are_counted_in_bytes_and_never_trimmed() {
        let mut room = room(&["a", "b"]);
        assert_eq!(send_to(&mut room, None, ""), Err(ErrorCode::InvalidBody));
        assert!(send_to(&mut room, None, " \n ").is_ok(), "what is not empty is sent as it is");
        assert!(send_to(&mut room, None, &"ü".repeat(2048)).is_ok());
        assert_eq!(send_to(&mut room, None, &format!("{}x", "ü".repeat(2048))), Err(ErrorCode::MessageTooLarge));
        let body = "NUL \0, escape \x1b[2J, right-to-left \u{202e}";
        send_to(&mut room, None, body).unwrap();
        let payload = room.events.last().unwrap().payload.clone().unwrap();
        assert_eq!(serde_json::from_str::<MessageSent>(payload.as_str()).unwrap().body, body);
    }

    const ME: ConnectionId = ConnectionId(1);
    const OTHER: ConnectionId = ConnectionId(2);

    fn open(held: &[(i64, Option<ConnectionId>)]) -> Vec<OpenDelivery> {
        let delivery = |(event_seq, held_by): &(i64, Option<ConnectionId>)| OpenDelivery {
            event_seq: *event_seq,
            recipient: id("a"),
            expires_at: None,
            held_by: *held_by,
        };
        held.iter().map(delivery).collect()
    }

    #[test]
    fn nobody_confirms_or_returns_for_another() {
        let listed = open(&[(1, Some(ME)), (2, None), (3, Some(OTHER))]);
        let refused = check_listed(&listed, ME, &[1, 2, 3]).unwrap_err();
        assert_eq!((refused.code, &refused.details["event_seqs"]), (ErrorCode::MessageHeld, &[3].as_slice().into()));
        assert_eq!(check_listed(&listed[..2], ME, &[1, 2]), Ok(()), "what this one took, and what nobody holds");
        assert_eq!(check_listed(&[], ME, &[1, 2]), Ok(()), "also again, when nothing of it is open");
        let many: Vec<i64> = (0..=MAX_LISTED as i64).collect();
        assert_eq!(check_listed(&[], ME, &many[1..]), Ok(()));
        assert_eq!(check_listed(&[], ME, &many).unwrap_err().code, ErrorCode::InvalidInput);
    }

    #[test]
    fn what_another_holds_is_neither_taken_nor_skipped() {
        let inbox = open(&[(1, None), (2, Some(OTHER)), (3, None), (4, None), (5, None)]);
        let taken = take(&inbox, ME, &id("a"), Some(2), 1);
        assert_eq!((taken.skipped, taken.event_seqs, taken.more), (vec![1, 3], vec![4], 1));
        let hold = Effect::Hold { connection: ME, agent_id: id("a"), event_seqs: vec![1, 3, 4] };
        assert_eq!(taken.effect, Some(hold));
    }

    #[test]
    fn a_take_skips_no_more_than_one_confirmation_lists() {
        let many: Vec<_> = (0..MAX_LISTED as i64 + 100).map(|seq| (seq, None)).collect();
        let taken = take(&open(&many), ME, &id("a"), Some(50), 10);
        assert_eq!((taken.skipped.len(), taken.event_seqs.len(), taken.more), (MAX_LISTED, 0, 100));
        let taken = take(&open(&many[MAX_LISTED..]), ME, &id("a"), Some(50), 10);
        assert_eq!((taken.skipped.len(), taken.event_seqs.len(), taken.more), (50, 10, 40), "the next one goes on");
    }

    #[test]
    fn only_a_member_of_an_open_room_may_speak() {
        let mut room = room(&["b"]);
        assert_eq!(send_to(&mut room, None, "hi"), Err(ErrorCode::UnknownMember));
        let mut room = crate::testing::room(&["a"]);
        room.state = tt_proto::room::StickState::Closed;
        assert_eq!(send_to(&mut room, None, "hi"), Err(ErrorCode::RoomClosed));
    }
}
