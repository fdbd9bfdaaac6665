//! The next deadline of each room, and one timer for the earliest of them all.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tt_proto::{RoomId, WallTime};

use crate::clock::Clock;

#[derive(Debug, Default)]
pub struct Deadlines {
    due: Mutex<Due>,
    earlier: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct Due {
    by_time: BTreeSet<(WallTime, RoomId)>,
    by_room: HashMap<RoomId, WallTime>,
}

impl Deadlines {
    /// Sets a room's next deadline. The timer is disturbed only when it would otherwise sleep past it.
    pub fn set(&self, room: &RoomId, next: Option<WallTime>) {
        let mut due = self.lock();
        if due.by_room.get(room) == next.as_ref() {
            return;
        }
        // What the timer sleeps until. It may be this room's own deadline, which mostly moves away: then it wakes once more.
        let awaited = due.by_time.first().map(|(first, _)| *first);
        if let Some(old) = due.by_room.remove(room) {
            due.by_time.remove(&(old, room.clone()));
        }
        if let Some(at) = next {
            due.by_room.insert(room.clone(), at);
            due.by_time.insert((at, room.clone()));
            if awaited.is_none_or(|first| at < first) {
                self.earlier.notify_one();
            }
        }
    }

    /// Resolves with the rooms that are due, once some are.
    pub async fn next(&self, clock: &Clock) -> Vec<RoomId> {
        loop {
            let now = clock.now();
            let rooms = self.take_due(now);
            if !rooms.is_empty() {
                return rooms;
            }
            let earliest = self.lock().by_time.first().map(|(at, _)| *at);
            match earliest {
                None => self.earlier.notified().await,
                Some(at) => {
                    // A millisecond more than rounding down would give, so that the deadline has passed on waking.
                    let rest = at.since(now) + std::time::Duration::from_millis(1);
                    tokio::select! {
                        () = tokio::time::sleep(rest) => {}
                        () = self.earlier.notified() => {}
                        () = clock.advanced() => {}
                    }
                }
            }
        }
    }

    fn take_due(&self, now: WallTime) -> Vec<RoomId> {
        let mut due = self.lock();
        let mut rooms = Vec::new();
        while let Some((at, room)) = due.by_time.first().cloned().filter(|(at, _)| *at <= now) {
            due.by_time.remove(&(at, room.clone()));
            due.by_room.remove(&room);
            rooms.push(room);
        }
        rooms
    }

    fn lock(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
