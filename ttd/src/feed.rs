//! Committed events, pushed to those who follow a room. The log is the buffer: a follower that falls behind reads on from
//! there.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use tt_proto::RoomId;
use tt_proto::event::{Event, EventType};

/// Events kept for a follower that is a little behind.
const MAX_LIVE_EVENTS: usize = 256;

/// Messages kept in memory, so that handing one over right after it was sent needs no query.
const MAX_RECENT_MESSAGES: usize = 256;

/// What a follower of a room receives.
#[derive(Debug, Clone)]
pub enum FeedItem {
    Event(Arc<Event>),
    /// The room and its log were deleted.
    Deleted,
}

#[derive(Debug, Default)]
pub struct Feed {
    rooms: Mutex<HashMap<RoomId, broadcast::Sender<FeedItem>>>,
    recent: Mutex<VecDeque<Arc<Event>>>,
}

impl Feed {
    /// Follows a room from now on.
    pub fn subscribe(&self, room: &RoomId) -> broadcast::Receiver<FeedItem> {
        lock(&self.rooms).entry(room.clone()).or_insert_with(|| broadcast::Sender::new(MAX_LIVE_EVENTS)).subscribe()
    }

    /// Publishes what was committed, in the order of the commits.
    pub fn publish(&self, room: &RoomId, events: &[Arc<Event>], deleted: bool) {
        self.remember(events);
        let mut rooms = lock(&self.rooms);
        let Some(sender) = rooms.get(room) else { return };
        if sender.receiver_count() == 0 {
            rooms.remove(room);
            return;
        }
        let deleted = deleted.then_some(FeedItem::Deleted);
        for item in events.iter().map(|event| FeedItem::Event(event.clone())).chain(deleted) {
            let _ = sender.send(item);
        }
    }

    fn remember(&self, events: &[Arc<Event>]) {
        let mut messages = events.iter().filter(|event| event.event_type == EventType::MessageSent).peekable();
        if messages.peek().is_none() {
            return;
        }
        let mut recent = lock(&self.recent);
        for message in messages {
            if recent.len() >= MAX_RECENT_MESSAGES {
                recent.pop_front();
            }
            recent.push_back(message.clone());
        }
    }

    /// These messages, if all of them were sent only recently.
    pub fn recent_messages(&self, event_seqs: &[i64]) -> Option<Vec<Event>> {
        let recent = lock(&self.recent);
        let find = |seq: &i64| {
            let index = recent.binary_search_by_key(seq, |event| event.event_seq).ok()?;
            Some(Event::clone(&recent[index]))
        };
        event_seqs.iter().map(find).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
