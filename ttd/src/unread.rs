//! How many messages wait for each member, known without a query: every greeting is answered with it. Read from the store
//! once, then kept in step with every commit.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tt_proto::delivery::DeliveryState;
use tt_proto::message::{DeliveryHint, Unread};
use tt_proto::{AgentId, RoomId};
use tt_rules::{DeliveryChange, NewDelivery};

use crate::listeners::Inbox;

#[derive(Debug, Default)]
pub struct UnreadCounts(Mutex<Counts>);

/// The messages that wait for each member, by the rooms in which they do.
type Counts = HashMap<AgentId, HashMap<RoomId, Unread>>;

/// What a committed decision changes: for each recipient, messages more and messages less.
#[derive(Debug, Default)]
pub struct UnreadChanges(Vec<(AgentId, Change)>);

#[derive(Debug, Clone, Copy)]
enum Change {
    Opened(DeliveryHint),
    Closed(DeliveryHint),
}

impl UnreadChanges {
    /// The changes of a decision.
    pub fn of(opened: &[NewDelivery], changed: &[DeliveryChange]) -> Self {
        let opened = opened.iter().map(|new| (new.recipient.clone(), Change::Opened(new.delivery_hint)));
        let is_closed = |change: &&DeliveryChange| {
            change.before == DeliveryState::Pending && change.after.state != DeliveryState::Pending
        };
        let closed = changed.iter().filter(is_closed).map(|change| &change.after);
        let closed = closed.map(|row| (row.recipient.clone(), Change::Closed(row.delivery_hint)));
        Self(opened.chain(closed).collect())
    }
}

impl UnreadCounts {
    /// Starts from what is stored.
    pub fn load(&self, stored: Vec<(RoomId, AgentId, Unread)>) {
        let mut counts = Counts::new();
        for (room_id, agent, unread) in stored {
            counts.entry(agent).or_default().insert(room_id, unread);
        }
        *self.lock() = counts;
    }

    pub fn get(&self, inbox: &Inbox) -> Unread {
        let (room_id, agent) = inbox;
        self.lock().get(agent).and_then(|rooms| rooms.get(room_id)).copied().unwrap_or_default()
    }

    /// Those for whom messages wait.
    pub fn agents(&self) -> Vec<AgentId> {
        self.lock().keys().cloned().collect()
    }

    /// The rooms in which messages wait for a member; those with messages that interrupt come first.
    pub fn rooms_of(&self, agent: &AgentId) -> Vec<(RoomId, Unread)> {
        let counts = self.lock();
        let mine = counts.get(agent).into_iter().flatten();
        let mut rooms: Vec<_> = mine.map(|(room_id, unread)| (room_id.clone(), *unread)).collect();
        drop(counts);
        rooms.sort_by(|(a, of_a), (b, of_b)| (of_b.interrupts, a).cmp(&(of_a.interrupts, b)));
        rooms
    }

    pub fn apply(&self, room_id: &RoomId, changes: UnreadChanges, deleted: bool) {
        if changes.0.is_empty() && !deleted {
            return;
        }
        let mut counts = self.lock();
        for (agent, change) in changes.0 {
            let rooms = counts.entry(agent.clone()).or_default();
            let count = rooms.entry(room_id.clone()).or_default();
            let interrupts = |hint| usize::from(hint == DeliveryHint::Interrupt);
            match change {
                Change::Opened(hint) => {
                    count.unread += 1;
                    count.interrupts += interrupts(hint);
                }
                Change::Closed(hint) => {
                    count.unread = count.unread.saturating_sub(1);
                    count.interrupts = count.interrupts.saturating_sub(interrupts(hint));
                }
            }
            if count.is_empty() {
                rooms.remove(room_id);
            }
            if rooms.is_empty() {
                counts.remove(&agent);
            }
        }
        if deleted {
            counts.retain(|_, rooms| {
                rooms.remove(room_id);
                !rooms.is_empty()
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
