//! Live events, room by room. The log is the buffer: whoever cannot keep up is told so and reads on from there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use tt_proto::RoomId;
use tt_proto::event::Event;

/// Events kept for a subscriber that is a little behind.
const LIVE: usize = 256;

/// What a subscriber hears.
#[derive(Debug, Clone)]
pub enum News {
    Event(Arc<Event>),
    /// The room and its log are gone.
    Deleted,
}

#[derive(Debug, Default)]
pub struct Subscribers(Mutex<HashMap<RoomId, broadcast::Sender<News>>>);

impl Subscribers {
    /// Hears everything that is committed from now on.
    pub fn subscribe(&self, room: &RoomId) -> broadcast::Receiver<News> {
        self.lock().entry(room.clone()).or_insert_with(|| broadcast::Sender::new(LIVE)).subscribe()
    }

    /// Tells the room's subscribers, in the order of the commits.
    pub fn publish(&self, room: &RoomId, news: impl IntoIterator<Item = News>) {
        let mut rooms = self.lock();
        let Some(sender) = rooms.get(room) else { return };
        if sender.receiver_count() == 0 {
            rooms.remove(room);
            return;
        }
        for item in news {
            let _ = sender.send(item);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RoomId, broadcast::Sender<News>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
