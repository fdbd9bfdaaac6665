//! Rooms as the writer left them, so that a command need not read back what the one before it wrote.
//!
//! Only the writer thread uses this, inside its transaction. What is kept is exactly what the tables hold: whenever
//! that is in doubt (something was rolled back, another program wrote to the file, members came or went) it is dropped
//! and read again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tt_proto::RoomId;

use super::rooms::Stored;

/// More rooms than this are not busy at once; the others are read when they are needed.
const ROOMS: usize = 64;

#[derive(Debug, Default)]
pub struct Kept(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The store's count of doubts at which these were kept.
    doubts: u64,
    rooms: HashMap<RoomId, Stored>,
}

impl Kept {
    /// Hands out a room, if it is kept. It has to be put back once the command is done: one that fails in between, in
    /// whatever way, leaves nothing behind.
    pub fn take(&self, room_id: &RoomId, doubts: u64) -> Option<Stored> {
        let mut inner = self.lock();
        if inner.doubts != doubts {
            inner.rooms.clear();
            inner.doubts = doubts;
        }
        inner.rooms.remove(room_id)
    }

    /// Keeps a room as it was just written.
    pub fn put(&self, stored: Stored) {
        let mut inner = self.lock();
        if inner.rooms.len() >= ROOMS {
            inner.rooms.clear();
        }
        inner.rooms.insert(stored.room.room_id.clone(), stored);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use tt_proto::handoff::Verbatim;
    use tt_proto::policy::Policy;
    use tt_proto::room::StickState;
    use tt_proto::{AgentId, LeaseId, Timestamp};

    use super::super::{migrations, rooms};
    use super::*;
    use crate::stick::{EventDraft, HandoffAt, HeldHandoff, testing};

    fn stored(connection: &Connection, room_id: &RoomId) -> Stored {
        rooms::stored(connection, room_id, &Policy::default()).unwrap()
    }

    /// A room with two members, in a database of our schema.
    fn room() -> (Connection, RoomId) {
        let connection = Connection::open_in_memory().unwrap();
        migrations::apply(&connection).unwrap();
        let room_id = rooms::create(&connection, "/w", Timestamp::from_millis(1)).unwrap();
        let before = stored(&connection, &room_id).room;
        let mut after = before.clone();
        after.members = testing::room(&["a", "b"]).members;
        rooms::save(&connection, &before, &after, Timestamp::from_millis(2)).unwrap();
        (connection, room_id)
    }

    #[test]
    fn what_is_kept_after_a_save_is_what_would_be_read() {
        let (connection, room_id) = room();
        let before = stored(&connection, &room_id);
        let mut after = before.room.clone();
        after.state = StickState::Owned;
        after.turn_id += 1;
        after.owner = Some(AgentId::trusted("a"));
        after.lease_id = Some(LeaseId::fresh());
        after.members[0].last_held_turn = Some(1);
        after.members[0].last_seen_at = Timestamp::from_millis(77_000);
        // A sign of life alone is not written.
        after.members[1].last_seen_at = Timestamp::from_millis(99_000);
        let handoff = Verbatim::parse("{\"status\":\"s\",\"next_action\":\"n\"}".into()).unwrap();
        let from = AgentId::trusted("b");
        let mut event = EventDraft::new(tt_proto::event::EventType::Pass, 1, &from);
        event.handoff = Some(handoff.clone());
        after.events.push(event);
        after.current_handoff = Some(HeldHandoff { at: HandoffAt::Draft(0), from, passed: true, handoff });
        let appended = rooms::save(&connection, &before.room, &after, Timestamp::from_millis(3)).unwrap();
        let seqs: Vec<i64> = appended.iter().map(|event| event.event_seq).collect();
        let (mut kept, mut read) = (before.followed_by(after, &seqs).unwrap(), stored(&connection, &room_id));
        kept.enliven(&Nobody);
        read.enliven(&Nobody);
        assert_eq!(kept.room, read.room);
    }

    #[test]
    fn when_members_come_or_go_the_room_is_read_again() {
        let (connection, room_id) = room();
        let before = stored(&connection, &room_id);
        let mut after = before.room.clone();
        after.members.pop();
        assert!(before.followed_by(after, &[]).is_none());
    }

    #[test]
    fn a_doubt_drops_everything_and_what_was_taken_is_gone_until_it_is_put_back() {
        let (connection, room_id) = room();
        let kept = Kept::default();
        kept.put(stored(&connection, &room_id));
        let taken = kept.take(&room_id, 0).unwrap();
        assert!(kept.take(&room_id, 0).is_none(), "a command that failed put nothing back");
        kept.put(taken);
        assert!(kept.take(&room_id, 1).is_none(), "something was rolled back in between");
    }

    /// Nothing is known of anyone but what is stored.
    struct Nobody;

    impl rooms::Live for Nobody {
        fn waiting(&self, _: &RoomId, _: &AgentId) -> crate::stick::Waiting {
            crate::stick::Waiting::No
        }
        fn last_seen(&self, _: &AgentId) -> Option<Timestamp> {
            None
        }
        fn last_wait(&self, _: &RoomId, _: &AgentId) -> Option<Timestamp> {
            None
        }
        fn liveness(&self, _: &tt_proto::hello::Anchor) -> tt_proto::room::Liveness {
            tt_proto::room::Liveness::Unknown
        }
        fn doubt(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
        fn policy(&self) -> &Policy {
            unreachable!("the room was loaded with its policy")
        }
    }
}
