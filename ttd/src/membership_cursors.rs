//! Up to which event the waits of each member have reported who joined and left.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tt_proto::{AgentId, RoomId};

use crate::listeners::Inbox;

#[derive(Debug, Default)]
pub struct MembershipCursors(Mutex<Cursors>);

#[derive(Debug, Default)]
struct Cursors {
    /// The newest event when this daemon started. No wait has reported what came after it.
    at_start: i64,
    rooms: HashMap<RoomId, HashMap<AgentId, i64>>,
}

impl MembershipCursors {
    /// The event after which a member's next wait reports joins and leaves: that of its last wait, or else of its join; or
    /// the start of this daemon, if an earlier one reported the rest.
    pub fn get(&self, inbox: &Inbox) -> i64 {
        let cursors = self.lock();
        cursors.rooms.get(&inbox.0).and_then(|room| room.get(&inbox.1)).copied().unwrap_or(cursors.at_start)
    }

    /// Where the waits of all members begin.
    pub fn start_all(&self, newest: i64) {
        self.lock().at_start = newest;
    }

    /// Lets a member's first wait report what comes after its join.
    pub fn start(&self, inbox: Inbox, joined_at: i64) {
        self.lock().rooms.entry(inbox.0).or_default().entry(inbox.1).or_insert(joined_at);
    }

    pub fn set(&self, inbox: Inbox, cursor: i64) {
        self.lock().rooms.entry(inbox.0).or_default().insert(inbox.1, cursor);
    }

    pub fn count(&self) -> usize {
        self.lock().rooms.values().map(HashMap::len).sum()
    }

    /// Forgets a room that was deleted.
    pub fn forget_room(&self, room: &RoomId) {
        self.lock().rooms.remove(room);
    }

    fn lock(&self) -> MutexGuard<'_, Cursors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
