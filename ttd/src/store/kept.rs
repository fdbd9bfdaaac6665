//! Rooms as their last command left them, so that the next one need not read back what was just written.
//!
//! Used on the writer thread alone, inside its transaction. A room is kept only once its command has succeeded, and all
//! are dropped when the tables may hold something else: a transaction failed, or another program wrote to the file.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tt_proto::RoomId;

use crate::stick::Room;

/// More rooms than this are not busy at once; the others are read when they are needed.
const ROOMS: usize = 64;

#[derive(Debug, Default)]
pub struct Kept(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The store's epoch in which these were kept.
    epoch: u64,
    rooms: HashMap<RoomId, Room>,
}

impl Kept {
    /// Hands a room out, if it is kept. It is kept no longer, until it is put back.
    pub fn take(&self, room_id: &RoomId, epoch: u64) -> Option<Room> {
        self.of(epoch).rooms.remove(room_id)
    }

    /// Keeps a room as it was just written, and nothing of one that was deleted.
    pub fn put(&self, room: Room, epoch: u64) {
        let mut inner = self.of(epoch);
        if inner.rooms.len() >= ROOMS {
            inner.rooms.clear();
        }
        if !room.deleted {
            inner.rooms.insert(room.room_id.clone(), room);
        }
    }

    fn of(&self, epoch: u64) -> MutexGuard<'_, Inner> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.epoch != epoch {
            *inner = Inner { epoch, rooms: HashMap::new() };
        }
        inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stick::testing;

    #[test]
    fn a_room_is_kept_until_it_is_taken_or_the_epoch_ends() {
        let (kept, room) = (Kept::default(), testing::room(&["a"]));
        let id = room.room_id.clone();
        kept.put(room, 0);
        let room = kept.take(&id, 0).unwrap();
        assert!(kept.take(&id, 0).is_none(), "a command that failed put nothing back");
        kept.put(room.clone(), 0);
        assert!(kept.take(&id, 1).is_none(), "something was rolled back in between");
        kept.put(Room { deleted: true, ..room }, 1);
        assert!(kept.take(&id, 1).is_none());
    }
}
