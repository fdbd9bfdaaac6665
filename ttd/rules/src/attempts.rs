//! Handing messages over by a way that cannot be recalled: to a harness, or into a terminal.
//!
//! Which way, under which tag and when is stored before it begins. From then on the delivery is held, also over a restart:
//! it does not expire, its sender cannot take it back, and no other surface takes it, until it is known what became of it.

use tt_proto::delivery::{DeliveryState, Surface};
use tt_proto::{AgentId, WallTime};

use crate::delivery::{self, Changes, DeliveryChange, DeliveryRow};
use crate::effect::Effect;
use crate::room::Room;
use crate::time::Now;

/// How often a message is handed over by ways that start by themselves while nothing shows that it arrives. After that it comes
/// with what the session does itself.
pub const MAX_ATTEMPTS: u32 = 3;

/// What became of a hand-over that had begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    Arrived,
    /// Nothing was handed over, or it is known not to have arrived.
    Not,
    /// It may have arrived, and nothing shows it.
    Unclear,
}

/// A hand-over that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub surface: Surface,
    /// What the block is framed with, by which it is found again.
    pub tag: String,
    pub at: WallTime,
}

/// Begins to hand over those of these messages that are still open: nobody has taken them, their deadline has not passed, and
/// their recipient belongs to the room. Returns which.
pub(crate) fn begin(
    room: &Room,
    rows: &[DeliveryRow],
    recipient: &AgentId,
    surface: Surface,
    tag: &str,
    now: Now,
) -> (Vec<DeliveryChange>, Vec<i64>) {
    let is_member = room.member(recipient).is_some_and(|member| member.status.is_member());
    let is_open = |row: &&DeliveryRow| {
        let is_past = row.expires_at.is_some_and(|at| at <= now.deadline);
        is_member && row.state == DeliveryState::Pending && !row.is_taken() && !is_past
    };
    let begun = rows.iter().filter(is_open).map(|row| {
        let attempt = Attempt { surface, tag: tag.to_owned(), at: now.wall };
        (changed(row, Some(attempt), now), row.event_seq)
    });
    begun.unzip()
}

/// Ends a hand-over. Messages that arrived are delivered; the others are open again, and expire if their deadline has passed.
pub(crate) fn end(
    room: &mut Room,
    rows: &[DeliveryRow],
    recipient: &AgentId,
    tag: &str,
    handled: Handled,
    now: Now,
) -> (Changes, Vec<Effect>) {
    let of_this = rows.iter().filter(|row| row.attempt.as_ref().is_some_and(|attempt| attempt.tag == tag));
    let surface = of_this.clone().find_map(|row| row.attempt.as_ref()).map(|attempt| attempt.surface);
    match surface {
        None => (Changes::default(), Vec::new()),
        Some(surface) if handled == Handled::Arrived => (delivery::delivered(room, of_this, surface, now), Vec::new()),
        Some(_) => {
            let ended = |row: &DeliveryRow| {
                let mut change = changed(row, None, now);
                change.after.attempts += u32::from(handled == Handled::Unclear);
                change
            };
            let changed = of_this.map(ended).collect();
            let offer = Effect::Offer { agent_id: recipient.clone() };
            (Changes { changed, opened: Vec::new() }, vec![offer])
        }
    }
}

/// A delivery whose hand-over began or ended, and which is as open as before.
fn changed(row: &DeliveryRow, attempt: Option<Attempt>, now: Now) -> DeliveryChange {
    let mut change = DeliveryChange::new(row, row.state, now.wall);
    change.after.attempt = attempt;
    change.is_internal = true;
    change
}

#[cfg(test)]
mod tests {
    use tt_proto::ErrorCode;
    use tt_proto::room::MemberStatus;

    use super::*;
    use crate::command::ConnectionId;
    use crate::delivery::MessageRow;
    use crate::testing::{id, now, room};

    const ME: ConnectionId = ConnectionId(1);

    fn open(event_seq: i64) -> DeliveryRow {
        DeliveryRow { event_seq, recipient: id("b"), from: Some(id("a")), ..DeliveryRow::default() }
    }

    fn begun(row: DeliveryRow) -> DeliveryRow {
        let (changes, _) = begin(&room(&["a", "b"]), &[row], &id("b"), Surface::Terminal, "t", now(0));
        changes[0].after.clone()
    }

    #[test]
    fn only_what_is_open_is_begun() {
        let rows = [
            open(1),
            DeliveryRow { held_by: Some(ME), ..open(2) },
            DeliveryRow { expires_at: Some(now(5).deadline), ..open(3) },
            begun(open(4)),
            DeliveryRow { state: DeliveryState::Withdrawn, ..open(5) },
            DeliveryRow { expires_at: Some(now(6).deadline), ..open(6) },
        ];
        let mut room = room(&["a", "b"]);
        let begin = |room: &Room| begin(room, &rows, &id("b"), Surface::Terminal, "t", now(5));
        let (changes, seqs) = begin(&room);
        assert_eq!(seqs, [1, 6]);
        let attempt = Attempt { surface: Surface::Terminal, tag: "t".into(), at: now(5).wall };
        assert!(changes.iter().all(|change| change.after.attempt == Some(attempt.clone()) && change.is_internal));
        assert!(changes.iter().all(|change| change.after.state == DeliveryState::Pending));
        room.member_mut(&id("b")).unwrap().status = MemberStatus::Kicked;
        assert_eq!(begin(&room).1, [0; 0], "nothing is handed to somebody who was removed");
    }

    #[test]
    fn what_is_being_handed_over_is_neither_taken_nor_confirmed_nor_withdrawn() {
        let row = begun(open(7));
        let taken = delivery::take(std::slice::from_ref(&row), Some(ME), &id("b"), None, 10, false, now(1).deadline);
        assert!(taken.is_empty());
        let listed = delivery::check_listed(std::slice::from_ref(&row), ME, &[7]);
        assert_eq!(listed.unwrap_err().code, ErrorCode::MessageHeld);
        let message = MessageRow { from: Some(id("a")) };
        let withdrawn = delivery::withdraw(&id("a"), Some(&message), 7, &[row], now(1));
        assert_eq!(withdrawn.unwrap_err().code, ErrorCode::AlreadyDelivered);
    }

    #[test]
    fn what_is_being_handed_over_expires_once_that_has_failed() {
        let row = begun(DeliveryRow { expires_at: Some(now(10).deadline), ..open(7) });
        let mut room = room(&["a", "b"]);
        assert_eq!(delivery::due(&mut room, std::slice::from_ref(&row), now(10)), Changes::default());
        assert_eq!(delivery::due_again(&row, now(9).deadline), Some(now(10).deadline));
        assert_eq!(delivery::due_again(&row, now(10).deadline), None, "nobody looks again and again");
        let (failed, effects) = end(&mut room, &[row], &id("b"), "t", Handled::Unclear, now(20));
        let open = &failed.changed[0].after;
        assert_eq!((open.state, &open.attempt, open.attempts), (DeliveryState::Pending, &None, 1));
        assert_eq!(effects, [Effect::Offer { agent_id: id("b") }]);
        assert_eq!(delivery::due_again(open, now(20).deadline), Some(now(10).deadline), "it is due at once");
        let expired = delivery::due(&mut room, std::slice::from_ref(open), now(20));
        assert_eq!(expired.changed[0].after.state, DeliveryState::Expired);
    }

    #[test]
    fn only_a_hand_over_that_may_have_arrived_is_counted() {
        let mut room = room(&["a", "b"]);
        for (handled, attempts) in [(Handled::Not, 0), (Handled::Unclear, 1)] {
            let (ended, effects) = end(&mut room, &[begun(open(7))], &id("b"), "t", handled, now(1));
            assert_eq!((ended.changed[0].after.attempts, effects.len()), (attempts, 1), "{handled:?}");
        }
    }

    #[test]
    fn the_asker_of_what_is_being_handed_over_at_the_deadline_is_told_once() {
        let deadline = Some(now(10).deadline);
        let row = begun(DeliveryRow { expects_reply: true, expires_at: deadline, ..open(7) });
        let mut room = room(&["a", "b"]);
        let over = delivery::due(&mut room, std::slice::from_ref(&row), now(10));
        let row = over.changed[0].after.clone();
        assert_eq!((row.state, row.is_over, row.attempt.is_some()), (DeliveryState::Pending, true, true));
        assert_eq!(over.opened.len(), 1);
        let (arrived, _) = end(&mut room, &[row], &id("b"), "t", Handled::Arrived, now(11));
        assert_eq!((arrived.changed[0].after.state, arrived.opened.len()), (DeliveryState::Delivered, 0));
    }

    #[test]
    fn what_arrived_is_delivered_by_its_surface_and_under_its_tag_alone() {
        let mut room = room(&["a", "b"]);
        let row = begun(DeliveryRow { notify_on_delivery: true, ..open(7) });
        let other = end(&mut room, std::slice::from_ref(&row), &id("b"), "u", Handled::Arrived, now(1));
        assert_eq!(other, (Changes::default(), Vec::new()));
        let (arrived, effects) = end(&mut room, &[row], &id("b"), "t", Handled::Arrived, now(1));
        let change = &arrived.changed[0];
        assert_eq!((change.after.state, change.surface), (DeliveryState::Delivered, Some(Surface::Terminal)));
        assert_eq!((&change.after.attempt, change.is_internal), (&None, false));
        assert_eq!((arrived.opened.len(), effects.len()), (1, 0), "the sender is told");
    }
}
