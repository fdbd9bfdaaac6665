//! Committed events, pushed to those who follow a room. The log is the buffer: a follower that falls behind reads on from
//! there.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tt_proto::RoomId;
use tt_proto::delivery::DeliveryChanged;
use tt_proto::event::{Event, EventType};

/// Events kept for a follower that is a little behind.
const MAX_LIVE_EVENTS: usize = 128;

/// A longer event is not kept for followers; they read it from the log.
const MAX_LIVE_BYTES: usize = 8 * 1024;

/// Messages kept in memory, so that handing one over right after it was sent needs no query.
const MAX_RECENT_MESSAGES: usize = 256;

/// What a follower of a room receives.
#[derive(Debug, Clone)]
pub enum FeedItem {
    Event(Arc<Event>),
    /// An event that is too long to be kept in memory. It is in the log.
    Stored {
        event_seq: i64,
    },
    /// A delivery changed its state. That is in no log.
    Delivery(Arc<DeliveryChanged>),
    /// The room and its log were deleted.
    Deleted,
}

#[derive(Debug, Clone, Default)]
pub struct Feed(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rooms: Mutex<HashMap<RoomId, broadcast::Sender<FeedItem>>>,
    recent: Mutex<VecDeque<Arc<Event>>>,
}

/// Follows a room for as long as it lives. The last one takes with it all that was kept for followers.
#[derive(Debug)]
pub struct Follower {
    feed: Feed,
    room: RoomId,
    /// None only while this is dropped.
    items: Option<broadcast::Receiver<FeedItem>>,
}

impl Follower {
    /// The next item of the room.
    pub async fn recv(&mut self) -> Result<FeedItem, RecvError> {
        match &mut self.items {
            Some(items) => items.recv().await,
            None => Err(RecvError::Closed),
        }
    }

    /// The next item, if there is one already.
    pub fn try_recv(&mut self) -> Result<FeedItem, TryRecvError> {
        self.items.as_mut().map_or(Err(TryRecvError::Closed), broadcast::Receiver::try_recv)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut rooms = lock(&self.feed.0.rooms);
        drop(self.items.take());
        if rooms.get(&self.room).is_some_and(|sender| sender.receiver_count() == 0) {
            rooms.remove(&self.room);
        }
    }
}

impl Feed {
    /// Follows a room from now on.
    pub fn subscribe(&self, room: &RoomId) -> Follower {
        let mut rooms = lock(&self.0.rooms);
        let sender = rooms.entry(room.clone()).or_insert_with(|| broadcast::Sender::new(MAX_LIVE_EVENTS));
        Follower { feed: self.clone(), room: room.clone(), items: Some(sender.subscribe()) }
    }

    /// How many rooms are followed.
    pub fn count(&self) -> usize {
        lock(&self.0.rooms).len()
    }

    /// Publishes what was committed, in the order of the commits. `deliveries` is called only if somebody follows the room.
    pub fn publish(
        &self,
        room: &RoomId,
        events: &[Arc<Event>],
        deliveries: impl FnOnce() -> Vec<DeliveryChanged>,
        deleted: bool,
    ) {
        self.remember(events);
        let rooms = lock(&self.0.rooms);
        let Some(sender) = rooms.get(room) else { return };
        let deliveries = deliveries().into_iter().map(|change| FeedItem::Delivery(Arc::new(change)));
        let deleted = deleted.then_some(FeedItem::Deleted);
        for item in events.iter().map(item).chain(deliveries).chain(deleted) {
            let _ = sender.send(item);
        }
    }

    fn remember(&self, events: &[Arc<Event>]) {
        let mut messages = events.iter().filter(|event| event.event_type == EventType::MessageSent).peekable();
        if messages.peek().is_none() {
            return;
        }
        let mut recent = lock(&self.0.recent);
        for message in messages {
            if recent.len() >= MAX_RECENT_MESSAGES {
                recent.pop_front();
            }
            recent.push_back(message.clone());
        }
    }

    /// These messages, if all of them were sent only recently.
    pub fn recent_messages(&self, event_seqs: &[i64]) -> Option<Vec<Event>> {
        let recent = lock(&self.0.recent);
        let find = |seq: &i64| {
            let index = recent.binary_search_by_key(seq, |event| event.event_seq).ok()?;
            Some(Event::clone(&recent[index]))
        };
        event_seqs.iter().map(find).collect()
    }
}

fn item(event: &Arc<Event>) -> FeedItem {
    let texts = [&event.handoff, &event.payload].into_iter().flatten().map(|json| json.as_str().len());
    let bytes = texts.chain(event.reason.iter().map(String::len)).sum::<usize>();
    match bytes <= MAX_LIVE_BYTES {
        true => FeedItem::Event(event.clone()),
        false => FeedItem::Stored { event_seq: event.event_seq },
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_that_nobody_follows_any_more_costs_nothing() {
        let feed = Feed::default();
        let followers: Vec<Follower> = ["a", "a", "b"].into_iter().map(|room| feed.subscribe(&room.into())).collect();
        assert_eq!(lock(&feed.0.rooms).len(), 2);
        drop(followers);
        assert!(lock(&feed.0.rooms).is_empty());
    }
}
