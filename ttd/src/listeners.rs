//! Which surfaces listen for a member's messages, and which messages a connection has taken and not yet confirmed.
//!
//! Nothing of this is stored. A connection that ends, or a daemon that ends, gives back what it held.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tt_proto::delivery::Surface;
use tt_proto::{AgentId, RoomId};
use tt_rules::ConnectionId;

/// The inbox of one member in one room.
pub type Inbox = (RoomId, AgentId);

#[derive(Debug, Clone, Default)]
pub struct Listeners(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    slots: Mutex<HashMap<Inbox, Slot>>,
    /// Told, with the listeners, whose messages there may be something to take of.
    driver: OnceLock<UnboundedSender<AgentId>>,
}

#[derive(Debug, Default)]
struct Slot {
    arrived: Arc<Notify>,
    /// None for one that waits for an answer only.
    surfaces: Vec<Option<Surface>>,
    held: HashMap<i64, ConnectionId>,
}

impl Slot {
    fn is_unused(&self) -> bool {
        self.surfaces.is_empty() && self.held.is_empty()
    }
}

/// A surface that listens for messages, for as long as this lives.
#[derive(Debug)]
pub struct Listener {
    listeners: Listeners,
    inbox: Inbox,
    surface: Option<Surface>,
    /// Notified when there may be something to take.
    pub arrived: Arc<Notify>,
}

impl Listeners {
    /// Listens for messages to a member. Every listener is woken; the first to take a message has it.
    pub fn listen(&self, inbox: &Inbox, surface: Surface) -> Listener {
        self.add(inbox, Some(surface))
    }

    /// Is woken with the listeners, and takes only what concerns a question of its own: to everybody else the member does not
    /// listen.
    pub fn await_answer(&self, inbox: &Inbox) -> Listener {
        self.add(inbox, None)
    }

    fn add(&self, inbox: &Inbox, surface: Option<Surface>) -> Listener {
        let mut slots = self.lock();
        let slot = slots.entry(inbox.clone()).or_default();
        slot.surfaces.push(surface);
        Listener { listeners: self.clone(), inbox: inbox.clone(), surface, arrived: slot.arrived.clone() }
    }

    /// How many inboxes are listened to, or have messages that a connection holds.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// From now on this is told with the listeners.
    pub fn tell_driver(&self, driver: UnboundedSender<AgentId>) {
        let _ = self.0.driver.set(driver);
    }

    /// Wakes the listeners of an inbox.
    pub fn offer(&self, inbox: &Inbox) {
        if let Some(slot) = self.lock().get(inbox) {
            slot.arrived.notify_waiters();
        }
        self.wake_driver(&inbox.1);
    }

    /// There may be something to do for an agent.
    pub fn wake_driver(&self, agent_id: &AgentId) {
        if let Some(driver) = self.0.driver.get() {
            let _ = driver.send(agent_id.clone());
        }
    }

    /// A surface that listens for a member now.
    pub fn listening(&self, inbox: &Inbox) -> Option<Surface> {
        self.lock().get(inbox).and_then(|slot| slot.surfaces.iter().copied().flatten().next())
    }

    /// Whether a member waits for an answer.
    pub fn awaits_answer(&self, inbox: &Inbox) -> bool {
        self.lock().get(inbox).is_some_and(|slot| slot.surfaces.contains(&None))
    }

    /// The connection that holds a message.
    pub fn holder(&self, inbox: &Inbox, event_seq: i64) -> Option<ConnectionId> {
        self.lock().get(inbox).and_then(|slot| slot.held.get(&event_seq).copied())
    }

    /// How many messages of an inbox connections hold.
    pub fn held_count(&self, inbox: &Inbox) -> usize {
        self.lock().get(inbox).map_or(0, |slot| slot.held.len())
    }

    /// Holds messages for a connection.
    pub fn hold(&self, inbox: &Inbox, connection: ConnectionId, event_seqs: &[i64]) {
        let mut slots = self.lock();
        let slot = slots.entry(inbox.clone()).or_default();
        slot.held.extend(event_seqs.iter().map(|seq| (*seq, connection)));
    }

    /// Lets go of messages that a connection holds. `offer`: wake the listeners, for they may take them.
    pub fn let_go(&self, inbox: &Inbox, connection: ConnectionId, event_seqs: &[i64], offer: bool) {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(inbox) else { return };
        for seq in event_seqs {
            if slot.held.get(seq) == Some(&connection) {
                slot.held.remove(seq);
            }
        }
        if offer {
            slot.arrived.notify_waiters();
            self.wake_driver(&inbox.1);
        }
        if slot.is_unused() {
            slots.remove(inbox);
        }
    }

    /// Lets go of everything a connection holds of an inbox that is no more.
    pub fn forget(&self, inbox: &Inbox, connection: ConnectionId) {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(inbox) else { return };
        slot.held.retain(|_, holder| *holder != connection);
        if slot.is_unused() {
            slots.remove(inbox);
        }
    }

    /// Gives back everything a connection held.
    pub fn end_connection(&self, connection: ConnectionId) {
        self.lock().retain(|inbox, slot| {
            let before = slot.held.len();
            slot.held.retain(|_, holder| *holder != connection);
            if slot.held.len() < before {
                slot.arrived.notify_waiters();
                self.wake_driver(&inbox.1);
            }
            !slot.is_unused()
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Inbox, Slot>> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut slots = self.listeners.lock();
        if let Some(slot) = slots.get_mut(&self.inbox) {
            if let Some(index) = slot.surfaces.iter().position(|surface| *surface == self.surface) {
                slot.surfaces.swap_remove(index);
            }
            if slot.is_unused() {
                slots.remove(&self.inbox);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: ConnectionId = ConnectionId(1);
    const OTHER: ConnectionId = ConnectionId(2);

    fn inbox() -> Inbox {
        ("room".into(), AgentId::trusted("a"))
    }

    #[test]
    fn only_the_holder_lets_go_of_a_message() {
        let listeners = Listeners::default();
        listeners.hold(&inbox(), ME, &[1, 2]);
        listeners.let_go(&inbox(), OTHER, &[1], false);
        assert_eq!(listeners.holder(&inbox(), 1), Some(ME));
        listeners.let_go(&inbox(), ME, &[1], false);
        assert_eq!((listeners.holder(&inbox(), 1), listeners.holder(&inbox(), 2)), (None, Some(ME)));
        listeners.end_connection(ME);
        assert!(listeners.lock().is_empty(), "nothing is kept for connections that ended");
    }

    #[tokio::test]
    async fn the_end_of_a_connection_wakes_the_others() {
        let listeners = Listeners::default();
        listeners.hold(&inbox(), ME, &[1]);
        let listener = listeners.listen(&inbox(), Surface::Wait);
        let asker = listeners.await_answer(&("room".into(), AgentId::trusted("b")));
        assert_eq!(listeners.listening(&asker.inbox), None, "it waits for an answer only");
        drop(asker);
        assert_eq!(listeners.listening(&inbox()), Some(Surface::Wait));
        let arrived = listener.arrived.clone();
        let woken = arrived.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        listeners.end_connection(ME);
        woken.await;
        drop(listener);
        assert!(listeners.lock().is_empty());
    }
}
