//! Rooms as their last unit of work left them, so that the next one need not read back what was just written.
//!
//! The writer thread owns it. It is cleared when a transaction fails and when another program has written to the database.

use std::collections::HashMap;

use tt_proto::RoomId;
use tt_rules::Room;

/// The most rooms that are kept. There are rarely more in use at once, and the others are read when they are needed.
const MAX_ROOMS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct RoomCache(HashMap<RoomId, Room>);

impl RoomCache {
    /// Hands a room out. It is no longer kept until it is put back.
    pub(super) fn take(&mut self, room_id: &RoomId) -> Option<Room> {
        self.0.remove(room_id)
    }

    /// Keeps a room as it was just saved, unless it was deleted.
    pub(super) fn put(&mut self, room: Room) {
        if self.0.len() >= MAX_ROOMS {
            self.0.clear();
        }
        if !room.deleted {
            self.0.insert(room.room_id.clone(), room);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use tt_rules::testing;

    use super::*;

    #[test]
    fn a_room_is_kept_until_it_is_taken_or_everything_is_dropped() {
        let (mut cache, room) = (RoomCache::default(), testing::room(&["a"]));
        let id = room.room_id.clone();
        cache.put(room);
        let room = cache.take(&id).unwrap();
        assert!(cache.take(&id).is_none(), "a unit that failed put nothing back");
        cache.put(room.clone());
        cache.clear();
        assert!(cache.take(&id).is_none(), "something was rolled back in between");
        cache.put(Room { deleted: true, ..room });
        assert!(cache.take(&id).is_none());
    }
}
