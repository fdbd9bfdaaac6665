//! What happens to a delivery: taken by a surface, confirmed, returned, due. Sending is in `sending.rs`.
//!
//! A message is one event and, for each recipient, one delivery. A surface takes open deliveries for its connection, shows
//! them, and confirms them. Taking is not stored: a connection or a daemon that ends gives back what it took. What is handed to
//! a harness cannot be taken back, and is stored before; that is in `attempts.rs`.
//!
//! The states are `pending → delivered → answered`, `pending → expired` and `pending → withdrawn`. Every change is one
//! [`DeliveryChange`], guarded by the state it starts from.

use std::time::Duration;

use tt_proto::delivery::{DeliveryState, Surface};
use tt_proto::message::{DeliveryHint, Notice};
use tt_proto::requests::{MAX_COUNTED, MAX_LISTED};
use tt_proto::{AgentId, Error, ErrorCode, WallTime};

use crate::attempts::Attempt;
use crate::command::ConnectionId;
use crate::effect::Effect;
use crate::notices;
use crate::room::Room;
use crate::time::{DeadlineTime, Now};
use crate::wakes::Wakes;

/// The most messages that are taken at once.
pub const MAX_TAKE: usize = 200;

/// How soon a message that could not expire because a connection holds it is looked at again.
const HELD_RETRY: Duration = Duration::from_secs(1);

/// A delivery that a command opens, for the event it adds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewDelivery {
    /// The index of the event among those the command adds.
    pub event: usize,
    pub recipient: AgentId,
    pub delivery_hint: DeliveryHint,
    pub wakes: Wakes,
    pub expires_at: Option<DeadlineTime>,
    pub expects_reply: bool,
    pub reply_to: Option<i64>,
    pub notify_on_delivery: bool,
    pub notify_after: Option<Duration>,
}

/// A delivery as it is stored, as far as a rule needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryRow {
    pub event_seq: i64,
    pub recipient: AgentId,
    /// Nobody for a notice.
    pub from: Option<AgentId>,
    pub state: DeliveryState,
    pub delivery_hint: DeliveryHint,
    pub wakes: Wakes,
    pub expires_at: Option<DeadlineTime>,
    pub expects_reply: bool,
    /// The message it replies to; of a notice, the message it is about.
    pub reply_to: Option<i64>,
    pub notify_on_delivery: bool,
    pub notify_after: Option<Duration>,
    /// When the sender is told that there is no answer yet.
    pub notify_at: Option<DeadlineTime>,
    /// It is a question of which its sender was told that no answer is to be expected any more.
    pub is_over: bool,
    /// The first characters of the message, where a notice may have to name it.
    pub excerpt: String,
    /// The connection that has taken it and not yet confirmed it. Not stored.
    pub held_by: Option<ConnectionId>,
    /// The hand-over that has begun and cannot be recalled, until it is known what became of it.
    pub attempt: Option<Attempt>,
    /// How many hand-overs have ended of which nothing showed that they arrived.
    pub attempts: u32,
}

/// A message as it is stored, as far as a rule needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// Nobody for a notice.
    pub from: Option<AgentId>,
}

impl DeliveryRow {
    /// Whether it may be on a screen already: it is neither taken again, nor does it expire, nor can its sender take it back.
    pub fn is_taken(&self) -> bool {
        self.held_by.is_some() || self.attempt.is_some()
    }

    /// The next moment at which something happens to it by itself.
    pub fn due_at(&self) -> Option<DeadlineTime> {
        match self.state {
            DeliveryState::Pending => self.expires_at,
            DeliveryState::Delivered => {
                let question = self.expires_at.filter(|_| self.expects_reply && !self.is_over);
                question.into_iter().chain(self.notify_at).min()
            }
            _ => None,
        }
    }

    /// Whether an answer to this question is still to be expected.
    pub(crate) fn awaits_answer(&self) -> bool {
        let is_open = matches!(self.state, DeliveryState::Pending | DeliveryState::Delivered);
        self.expects_reply && is_open && !self.is_over
    }
}

/// A change of a delivery, guarded by the state it starts from.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryChange {
    /// The state it must be in for the change to happen.
    pub before: DeliveryState,
    pub after: DeliveryRow,
    /// The surface that handed it over with this change.
    pub surface: Option<Surface>,
    /// The event that answers it, by its index among those the command adds.
    pub answered_by: Option<usize>,
    /// The answer came after the question was over.
    pub is_late: bool,
    /// It concerns how it is handed over; who follows it sees no change.
    pub is_internal: bool,
    pub at: WallTime,
}

impl DeliveryChange {
    pub(crate) fn new(before: &DeliveryRow, state: DeliveryState, at: WallTime) -> Self {
        let mut after = DeliveryRow { state, notify_at: None, ..before.clone() };
        after.attempt.take_if(|_| state != DeliveryState::Pending);
        Self { before: before.state, after, surface: None, answered_by: None, is_late: false, is_internal: false, at }
    }
}

/// Changes of deliveries, and the notices that go with them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) changed: Vec<DeliveryChange>,
    pub(crate) opened: Vec<NewDelivery>,
}

/// Messages that a surface took.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Taken {
    pub(crate) skipped: Vec<i64>,
    pub(crate) event_seqs: Vec<i64>,
    pub(crate) more: usize,
    pub(crate) effect: Option<Effect>,
}

impl Taken {
    pub(crate) fn is_empty(&self) -> bool {
        self.event_seqs.is_empty() && self.skipped.is_empty()
    }
}

/// Takes the open deliveries that no connection holds: the most urgent first, and of those the oldest. With more than
/// `max_replay` of them the older ones are skipped (and held too, so that they can be confirmed as skipped), but never one
/// that interrupts, a question, or what became of one; past `limit` the others stay. With more to skip than one confirmation can list, nothing is shown yet: the
/// next take goes on. Without a connection that holds them, it is all that are open. One whose deadline has passed is left to
/// its timer, which expires it for all of its recipients at once and knows what to tell the sender.
pub(crate) fn take(
    open: &[DeliveryRow],
    holds: Option<ConnectionId>,
    recipient: &AgentId,
    max_replay: Option<usize>,
    limit: usize,
    mid_turn: bool,
    now: DeadlineTime,
) -> Taken {
    let is_for_later = |d: &DeliveryRow| mid_turn && d.delivery_hint == DeliveryHint::Idle;
    let is_past = |d: &DeliveryRow| !d.is_taken() && d.expires_at.is_some_and(|at| at <= now);
    let is_free = |d: &&DeliveryRow| (!d.is_taken() || holds.is_none()) && !is_for_later(d) && !is_past(d);
    let free: Vec<&DeliveryRow> = open.iter().filter(is_free).collect();
    let mut skip = max_replay.map_or(0, |max| free.len().saturating_sub(max));
    let limit = if skip > MAX_LISTED { 0 } else { limit.min(MAX_TAKE) };
    skip = skip.min(MAX_LISTED);
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for delivery in free {
        let matters = delivery.expects_reply || delivery.reply_to.is_some();
        if skip > 0 && delivery.delivery_hint != DeliveryHint::Interrupt && !matters {
            skip -= 1;
            old.push(delivery.event_seq);
        } else {
            new.push(delivery);
        }
    }
    // Stable: among equals the oldest stays first.
    new.sort_by_key(|delivery| std::cmp::Reverse(delivery.delivery_hint));
    let mine: Vec<i64> = new.iter().take(limit).map(|delivery| delivery.event_seq).collect();
    let held = || [old.as_slice(), mine.as_slice()].concat();
    let hold = |connection| Effect::Hold { connection, agent_id: recipient.clone(), event_seqs: held() };
    let effect = holds.filter(|_| !old.is_empty() || !mine.is_empty()).map(hold);
    Taken { more: (new.len() - mine.len()).min(MAX_COUNTED), skipped: old, event_seqs: mine, effect }
}

/// Refuses a list of messages of which another connection holds one: nobody confirms or returns for another. `open` are those
/// of them that are open.
pub(crate) fn check_listed(open: &[DeliveryRow], connection: ConnectionId, event_seqs: &[i64]) -> Result<(), Error> {
    if event_seqs.len() > MAX_LISTED {
        let message = format!("{} messages are listed; at most {MAX_LISTED} are allowed", event_seqs.len());
        return Err(Error::new(ErrorCode::InvalidInput, message).hint("list them in several calls"));
    }
    let is_anothers = |delivery: &&DeliveryRow| {
        delivery.attempt.is_some() || delivery.held_by.is_some_and(|holder| holder != connection)
    };
    let held: Vec<i64> = open.iter().filter(is_anothers).map(|delivery| delivery.event_seq).collect();
    if held.is_empty() {
        return Ok(());
    }
    let message = "one of these messages was taken by another connection, or is being handed over; nothing was changed";
    Err(Error::new(ErrorCode::MessageHeld, message).detail("event_seqs", held))
}

/// Marks messages as delivered that were shown, or skipped. Their senders get the notices they asked for.
pub(crate) fn confirm(
    room: &mut Room,
    open: &[DeliveryRow],
    connection: ConnectionId,
    recipient: &AgentId,
    surface: Surface,
    event_seqs: &[i64],
    now: Now,
) -> (Changes, Effect) {
    // What was confirmed before need not be held any longer either.
    let event_seqs = event_seqs.to_vec();
    let effect = Effect::LetGo { connection, agent_id: recipient.clone(), event_seqs, offer: false };
    (delivered(room, open, surface, now), effect)
}

/// Marks open deliveries as handed over by a surface.
pub(crate) fn delivered<'a>(
    room: &mut Room,
    open: impl IntoIterator<Item = &'a DeliveryRow>,
    surface: Surface,
    now: Now,
) -> Changes {
    let mut changes = Changes::default();
    for delivery in open {
        let mut change = DeliveryChange::new(delivery, DeliveryState::Delivered, now.wall);
        change.surface = Some(surface);
        // Who was told that no answer is to be expected is not told so again.
        change.after.notify_at = delivery.notify_after.filter(|_| !delivery.is_over).map(|after| now.deadline + after);
        changes.changed.push(change);
        if delivery.notify_on_delivery {
            changes.opened.extend(notices::about(room, Notice::Delivered, &[delivery], Duration::ZERO));
        }
    }
    changes
}

/// Gives back messages that this connection took. Returns how many of them are open. One that was confirmed elsewhere in
/// the meantime is not held any longer either.
pub(crate) fn give_back(
    open: &[DeliveryRow],
    connection: ConnectionId,
    recipient: &AgentId,
    event_seqs: &[i64],
) -> (usize, Effect) {
    let returned = open.iter().filter(|delivery| delivery.held_by == Some(connection)).count();
    let event_seqs = event_seqs.to_vec();
    let effect = Effect::LetGo { connection, agent_id: recipient.clone(), event_seqs, offer: returned > 0 };
    (returned, effect)
}

/// Expires those of these open deliveries whose deadline has passed. One that is taken may be on a screen already and is
/// not expired. The sender of a question that nobody answered, and one that asked to be told, gets one notice for all of them.
fn expire(room: &mut Room, rows: &[DeliveryRow], now: Now) -> Changes {
    let is_due = |row: &&DeliveryRow| {
        row.state == DeliveryState::Pending && !row.is_taken() && row.expires_at.is_some_and(|at| at <= now.deadline)
    };
    let due: Vec<&DeliveryRow> = rows.iter().filter(is_due).collect();
    let mut changes = Changes::default();
    for row in &due {
        let mut change = DeliveryChange::new(row, DeliveryState::Expired, now.wall);
        change.after.is_over = row.expects_reply;
        changes.changed.push(change);
    }
    let is_open = |row: &DeliveryRow| row.awaits_answer() && !is_answered(rows);
    let told: Vec<&DeliveryRow> = due.into_iter().filter(|row| is_open(row) || row.notify_on_delivery).collect();
    let late = told.iter().filter_map(|row| row.expires_at).map(|at| now.deadline.since(at)).max();
    changes.opened.extend(notices::about(room, Notice::Expired, &told, late.unwrap_or_default()));
    changes
}

/// Whether somebody has answered a message: one answer is enough.
fn is_answered(rows: &[DeliveryRow]) -> bool {
    rows.iter().any(|row| row.state == DeliveryState::Answered)
}

/// Does what is due of one message: deliveries expire, questions are over, senders are told that no answer came.
pub(crate) fn due(room: &mut Room, rows: &[DeliveryRow], now: Now) -> Changes {
    let mut changes = expire(room, rows, now);
    let due = |at: Option<DeadlineTime>| at.is_some_and(|at| at <= now.deadline);
    let mut unanswered = Vec::new();
    let mut late = Duration::ZERO;
    // A question that is taken may never be shown: its asker waits no longer for that.
    let is_held = |row: &DeliveryRow| row.state == DeliveryState::Pending && row.is_taken();
    for row in rows.iter().filter(|row| row.state == DeliveryState::Delivered || is_held(row)) {
        let (is_over, notify) = (row.awaits_answer() && due(row.expires_at), due(row.notify_at));
        if !is_over && !notify {
            continue;
        }
        let mut change = DeliveryChange::new(row, row.state, now.wall);
        change.after.is_over |= is_over;
        change.after.notify_at = row.notify_at.filter(|_| !notify && !is_over);
        changes.changed.push(change);
        let since = [row.expires_at.filter(|_| is_over), row.notify_at.filter(|_| notify)];
        late = since.into_iter().flatten().map(|at| now.deadline.since(at)).chain([late]).max().unwrap_or_default();
        unanswered.push(row);
    }
    if !unanswered.is_empty() && !is_answered(rows) {
        changes.opened.extend(notices::about(room, Notice::NotAnswered, &unanswered, late));
    }
    changes
}

/// When something happens to a delivery next. One that is due and did not expire because a connection holds it is looked at again;
/// one that is being handed over, when that has ended.
pub(crate) fn due_again(row: &DeliveryRow, now: DeadlineTime) -> Option<DeadlineTime> {
    let at = row.due_at()?;
    match &row.attempt {
        _ if at > now => Some(at),
        Some(_) => None,
        None if row.held_by.is_some() => Some(now + HELD_RETRY),
        None => Some(at),
    }
}

/// Ends the questions to members that left: those who asked are told, unless somebody has answered or still may. `rows` are all
/// deliveries of the questions that are not over, in the order of the log.
pub(crate) fn end_questions(room: &mut Room, rows: &[DeliveryRow], gone: &[AgentId], now: Now) -> Changes {
    let mut changes = Changes::default();
    for rows in rows.chunk_by(|a, b| a.event_seq == b.event_seq) {
        let awaited = rows.iter().filter(|row| row.awaits_answer());
        let (lost, others): (Vec<_>, Vec<_>) = awaited.partition(|row| gone.contains(&row.recipient));
        for row in &lost {
            let mut change = DeliveryChange::new(row, row.state, now.wall);
            change.after.is_over = true;
            changes.changed.push(change);
        }
        if others.is_empty() && !is_answered(rows) {
            changes.opened.extend(notices::about(room, Notice::RecipientGone, &lost, Duration::ZERO));
        }
    }
    changes
}

/// Takes a message back from those to whom it was not handed over. Returns the changes, and for how many it is too late.
pub(crate) fn withdraw(
    caller: &AgentId,
    message: Option<&MessageRow>,
    event_seq: i64,
    rows: &[DeliveryRow],
    now: Now,
) -> Result<(Vec<DeliveryChange>, usize), Error> {
    let unknown = || {
        Error::new(ErrorCode::UnknownMessage, format!("there is no message {event_seq} in this room"))
            .detail("event_seq", event_seq)
    };
    let message = message.ok_or_else(unknown)?;
    if message.from.as_ref() != Some(caller) {
        return Err(Error::new(ErrorCode::InvalidInput, format!("message {event_seq} is not yours"))
            .hint("only its sender can withdraw a message")
            .detail("event_seq", event_seq));
    }
    let is_open = |row: &&DeliveryRow| row.state == DeliveryState::Pending && !row.is_taken();
    let open = rows.iter().filter(is_open);
    let changed: Vec<_> = open.map(|row| DeliveryChange::new(row, DeliveryState::Withdrawn, now.wall)).collect();
    let has_it = |row: &&DeliveryRow| matches!(row.state, DeliveryState::Delivered | DeliveryState::Answered);
    let is_taken = |row: &&DeliveryRow| row.state == DeliveryState::Pending && row.is_taken();
    let too_late = rows.iter().filter(|row| has_it(row) || is_taken(row)).count();
    let was_withdrawn = rows.iter().any(|row| row.state == DeliveryState::Withdrawn);
    if changed.is_empty() && !was_withdrawn {
        let message = match too_late {
            0 => format!("message {event_seq} waits for nobody"),
            _ => format!("message {event_seq} was handed over already"),
        };
        return Err(Error::new(ErrorCode::AlreadyDelivered, message).detail("event_seq", event_seq));
    }
    Ok((changed, too_late))
}

#[cfg(test)]
mod tests {
    use tt_proto::room::MemberStatus;

    use super::*;
    use crate::testing::{id, now, room};

    const ME: ConnectionId = ConnectionId(1);
    const OTHER: ConnectionId = ConnectionId(2);

    fn open(held: &[(i64, Option<ConnectionId>)]) -> Vec<DeliveryRow> {
        let delivery = |(event_seq, held_by): &(i64, Option<ConnectionId>)| DeliveryRow {
            event_seq: *event_seq,
            recipient: id("a"),
            held_by: *held_by,
            ..DeliveryRow::default()
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
        let taken = take(&inbox, Some(ME), &id("a"), Some(2), 1, false, now(0).deadline);
        assert_eq!((taken.skipped, taken.event_seqs, taken.more), (vec![1, 3], vec![4], 1));
        let hold = Effect::Hold { connection: ME, agent_id: id("a"), event_seqs: vec![1, 3, 4] };
        assert_eq!(taken.effect, Some(hold));
    }

    #[test]
    fn a_take_skips_no_more_than_one_confirmation_lists() {
        let many: Vec<_> = (0..MAX_LISTED as i64 + 100).map(|seq| (seq, None)).collect();
        let taken = take(&open(&many), Some(ME), &id("a"), Some(50), 10, false, now(0).deadline);
        assert_eq!((taken.skipped.len(), taken.event_seqs.len(), taken.more), (MAX_LISTED, 0, 100));
        let taken = take(&open(&many[MAX_LISTED..]), Some(ME), &id("a"), Some(50), 10, false, now(0).deadline);
        assert_eq!((taken.skipped.len(), taken.event_seqs.len(), taken.more), (50, 10, 40), "the next one goes on");
    }

    #[test]
    fn urgent_messages_are_taken_first_and_an_interrupt_is_never_skipped() {
        use DeliveryHint::{Important, Interrupt, Normal};
        let hints = [Normal, Interrupt, Normal, Important, Normal, Interrupt];
        let open: Vec<DeliveryRow> = (1..)
            .zip(hints)
            .map(|(event_seq, delivery_hint)| DeliveryRow {
                event_seq,
                recipient: id("a"),
                delivery_hint,
                ..DeliveryRow::default()
            })
            .collect();
        let take = |max_replay, limit| take(&open, Some(ME), &id("a"), max_replay, limit, false, now(0).deadline);
        let all = take(None, 10);
        assert_eq!((all.event_seqs.as_slice(), all.more), (&[2, 6, 4, 1, 3, 5][..], 0));
        let three = take(None, 3);
        assert_eq!((three.event_seqs.as_slice(), three.more), (&[2, 6, 4][..], 3));
        let newest = take(Some(2), 10);
        assert_eq!(newest.event_seqs, [2, 6], "however old the first of them is");
        assert_eq!(newest.skipped, [1, 3, 4, 5], "an interrupt in that range is not among them");
    }

    #[test]
    fn a_message_for_later_stays_while_its_recipient_works() {
        let hinted = |(event_seq, delivery_hint)| DeliveryRow { event_seq, delivery_hint, ..DeliveryRow::default() };
        let open: Vec<_> = [(1, DeliveryHint::Idle), (2, DeliveryHint::Normal)].map(hinted).into();
        assert_eq!(take(&open, Some(ME), &id("a"), None, 10, true, now(0).deadline).event_seqs, [2]);
        assert_eq!(
            take(&open, Some(ME), &id("a"), None, 10, false, now(0).deadline).event_seqs,
            [2, 1],
            "and then comes last"
        );
    }

    #[test]
    fn a_question_is_never_skipped() {
        let mut rows = open(&[(1, None), (2, None), (3, None)]);
        rows[0].expects_reply = true;
        let taken = take(&rows, Some(ME), &id("a"), Some(1), 10, false, now(0).deadline);
        assert_eq!((taken.skipped, taken.event_seqs), (vec![2, 3], vec![1]));
        rows[1].reply_to = Some(1);
        let taken = take(&rows, Some(ME), &id("a"), Some(1), 10, false, now(0).deadline);
        assert_eq!((taken.skipped, taken.event_seqs), (vec![3], vec![1, 2]), "nor is an answer");
    }

    /// Message 7 of `a` to `b`, due in second 10.
    fn question(state: DeliveryState) -> DeliveryRow {
        DeliveryRow {
            event_seq: 7,
            recipient: id("b"),
            from: Some(id("a")),
            state,
            expires_at: Some(now(10).deadline),
            expects_reply: true,
            excerpt: "why?".into(),
            ..DeliveryRow::default()
        }
    }

    /// What the notices of a change say, and to whom.
    fn notices_of(room: &Room, changes: &Changes) -> Vec<(String, Option<Notice>, Option<i64>)> {
        let told = changes.opened.iter().map(|opened| {
            let payload = room.events[opened.event].payload.clone().unwrap();
            let payload: tt_proto::message::MessageSent = serde_json::from_str(payload.as_str()).unwrap();
            (opened.recipient.to_string(), payload.notice, opened.reply_to)
        });
        told.collect()
    }

    #[test]
    fn a_question_ends_at_its_deadline_and_its_asker_is_told_once() {
        let told = |notice| vec![("a".to_owned(), Some(notice), Some(7))];
        let mut room = room(&["a", "b"]);
        assert_eq!(due(&mut room, &[question(DeliveryState::Pending)], now(9)), Changes::default(), "too early");
        let expired = due(&mut room, &[question(DeliveryState::Pending)], now(10));
        assert_eq!(expired.changed[0].after.state, DeliveryState::Expired);
        assert_eq!(notices_of(&room, &expired), told(Notice::Expired));
        let over = due(&mut room, &[question(DeliveryState::Delivered)], now(10));
        assert_eq!((over.changed[0].after.state, over.changed[0].after.is_over), (DeliveryState::Delivered, true));
        assert_eq!(notices_of(&room, &over), told(Notice::NotAnswered));
        assert_eq!(due(&mut room, &[over.changed[0].after.clone()], now(11)), Changes::default(), "and not again");
        for state in [DeliveryState::Answered, DeliveryState::Withdrawn, DeliveryState::Expired] {
            assert_eq!(due(&mut room, &[question(state)], now(10)), Changes::default(), "{state:?}");
        }
    }

    #[test]
    fn a_question_that_a_connection_holds_is_over_at_its_deadline_and_expires_when_it_comes_back() {
        let held = DeliveryRow { held_by: Some(OTHER), ..question(DeliveryState::Pending) };
        let mut room = room(&["a", "b"]);
        let over = due(&mut room, std::slice::from_ref(&held), now(10));
        assert_eq!((over.changed[0].after.state, over.changed[0].after.is_over), (DeliveryState::Pending, true));
        assert_eq!(notices_of(&room, &over), [("a".to_owned(), Some(Notice::NotAnswered), Some(7))]);
        let held = over.changed[0].after.clone();
        assert_eq!(due(&mut room, std::slice::from_ref(&held), now(11)), Changes::default(), "the asker is told once");
        assert_eq!(due_again(&held, now(11).deadline), Some(now(12).deadline));
        let back = DeliveryRow { held_by: None, ..held };
        let expired = due(&mut room, &[back], now(12));
        assert_eq!((expired.changed[0].after.state, expired.opened.len()), (DeliveryState::Expired, 0));
    }

    #[test]
    fn a_question_to_several_is_answered_by_one() {
        let mut room = room(&["a", "b", "c"]);
        let to_c = |state| DeliveryRow { recipient: id("c"), ..question(state) };
        let rows = [question(DeliveryState::Delivered), to_c(DeliveryState::Answered)];
        let changes = due(&mut room, &rows, now(10));
        assert_eq!((changes.changed.len(), changes.opened.len()), (1, 0), "nobody need be told");
        let rows = [question(DeliveryState::Delivered), to_c(DeliveryState::Delivered)];
        let changes = due(&mut room, &rows, now(10));
        assert_eq!((changes.changed.len(), changes.opened.len()), (2, 1), "one notice for both");
    }

    #[test]
    fn a_sender_is_told_of_the_delivery_and_of_the_silence_after_it() {
        let mut room = room(&["a", "b"]);
        let sent = DeliveryRow {
            expires_at: None,
            expects_reply: false,
            notify_on_delivery: true,
            notify_after: Some(Duration::from_secs(60)),
            ..question(DeliveryState::Pending)
        };
        let (delivered, _) =
            confirm(&mut room, std::slice::from_ref(&sent), ME, &id("b"), Surface::Wait, &[7], now(100));
        assert_eq!(notices_of(&room, &delivered), [("a".to_owned(), Some(Notice::Delivered), Some(7))]);
        let row = delivered.changed[0].after.clone();
        assert_eq!(row.due_at(), Some(now(160).deadline));
        let silent = due(&mut room, std::slice::from_ref(&row), now(160));
        assert_eq!(notices_of(&room, &silent), [("a".to_owned(), Some(Notice::NotAnswered), Some(7))]);
        assert_eq!(silent.changed[0].after.due_at(), None);
        room.member_mut(&id("a")).unwrap().status = MemberStatus::Gone;
        assert!(due(&mut room, &[row], now(160)).opened.is_empty(), "nobody is there to be told");
    }

    #[test]
    fn who_asked_a_member_that_left_is_told_at_once() {
        let mut room = room(&["a", "b", "c"]);
        let rows = [
            question(DeliveryState::Pending),
            DeliveryRow { recipient: id("c"), ..question(DeliveryState::Delivered) },
        ];
        let one = end_questions(&mut room, &rows, &[id("b")], now(1));
        assert_eq!((one.changed.len(), one.opened.len()), (1, 0), "another may still answer");
        assert_eq!((one.changed[0].after.state, one.changed[0].after.is_over), (DeliveryState::Pending, true));
        let both = end_questions(&mut room, &rows, &[id("b"), id("c")], now(1));
        assert_eq!(notices_of(&room, &both), [("a".to_owned(), Some(Notice::RecipientGone), Some(7))]);
    }

    #[test]
    fn nobody_is_told_twice_that_a_question_is_over_nor_that_one_that_was_answered_is() {
        let mut room = room(&["a", "b", "c"]);
        let lost = end_questions(&mut room, &[question(DeliveryState::Pending)], &[id("b")], now(1));
        assert_eq!(lost.opened.len(), 1);
        let expired = due(&mut room, &[lost.changed[0].after.clone()], now(10));
        assert_eq!((expired.changed[0].after.state, expired.opened.len()), (DeliveryState::Expired, 0));

        let notify_after = Some(Duration::from_secs(60));
        let back = DeliveryRow { notify_after, ..lost.changed[0].after.clone() };
        let (shown, _) = confirm(&mut room, &[back], ME, &id("b"), Surface::Wait, &[7], now(2));
        assert_eq!(shown.changed[0].after.due_at(), None, "it came back and was shown it");
        let patient = DeliveryRow { notify_at: Some(now(60).deadline), ..question(DeliveryState::Delivered) };
        let over = due(&mut room, &[patient], now(10));
        assert_eq!((over.opened.len(), over.changed[0].after.due_at()), (1, None));

        let answered = DeliveryRow { recipient: id("c"), ..question(DeliveryState::Answered) };
        let rows = [question(DeliveryState::Pending), answered];
        let left = end_questions(&mut room, &rows, &[id("b")], now(1));
        assert_eq!((left.changed.len(), left.opened.len()), (1, 0), "c has answered it");
        let expired = due(&mut room, &rows, now(10));
        assert_eq!((expired.changed.len(), expired.opened.len()), (1, 0));
    }

    #[test]
    fn what_is_past_its_deadline_is_taken_by_nobody() {
        let rows = [question(DeliveryState::Pending)];
        assert_eq!(take(&rows, Some(ME), &id("b"), None, 10, false, now(9).deadline).event_seqs, [7]);
        for holds in [Some(ME), None] {
            assert!(take(&rows, holds, &id("b"), None, 10, false, now(10).deadline).is_empty());
        }
    }

    #[test]
    fn only_the_sender_takes_a_message_back_and_only_before_it_is_handed_over() {
        let from = |agent: &str| Some(MessageRow { from: Some(id(agent)) });
        let withdraw = |caller: &str, message: Option<MessageRow>, rows: &[DeliveryRow]| {
            let done = withdraw(&id(caller), message.as_ref(), 7, rows, now(0));
            done.map(|(changed, too_late)| (changed.len(), too_late)).map_err(|e| e.code)
        };
        let (open, delivered) = (question(DeliveryState::Pending), question(DeliveryState::Delivered));
        let held = DeliveryRow { held_by: Some(OTHER), ..open.clone() };
        assert_eq!(withdraw("a", from("a"), &[open.clone(), delivered.clone()]), Ok((1, 1)));
        assert_eq!(withdraw("a", from("a"), &[question(DeliveryState::Withdrawn)]), Ok((0, 0)), "again");
        assert_eq!(withdraw("a", from("a"), &[delivered]), Err(ErrorCode::AlreadyDelivered));
        assert_eq!(withdraw("a", from("a"), &[held]), Err(ErrorCode::AlreadyDelivered), "it may be on a screen");
        assert_eq!(withdraw("b", from("a"), std::slice::from_ref(&open)), Err(ErrorCode::InvalidInput));
        assert_eq!(withdraw("a", None, &[]), Err(ErrorCode::UnknownMessage));
    }
}
