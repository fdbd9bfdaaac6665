//! Inboxes while the daemon runs: who listens for messages, and what has been taken but not yet shown.
//!
//! A taken message is out of everyone else's reach until its taker confirms it or goes away. Nothing of this is written:
//! a daemon that dies gives everything back.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tt_proto::delivery::Surface;
use tt_proto::{AgentId, RoomId};

/// One member of one room.
pub type Owner = (RoomId, AgentId);

#[derive(Debug, Clone, Default)]
pub struct Inbox(Arc<Mutex<HashMap<Owner, Slot>>>);

#[derive(Debug, Default)]
struct Slot {
    arrived: Arc<Notify>,
    listeners: Vec<Surface>,
    taken: HashSet<i64>,
}

impl Slot {
    fn is_idle(&self) -> bool {
        self.listeners.is_empty() && self.taken.is_empty()
    }
}

/// A surface that listens for messages, for as long as this lives.
#[derive(Debug)]
pub struct Listener {
    inbox: Inbox,
    owner: Owner,
    surface: Surface,
    /// Notified when there may be something to take.
    pub arrived: Arc<Notify>,
}

/// Messages taken and not yet confirmed. Dropping it gives them back.
#[derive(Debug)]
pub struct Taken {
    inbox: Inbox,
    pub owner: Owner,
    pub event_seqs: HashSet<i64>,
}

impl Inbox {
    /// Listens for messages to a member. Each listener is woken; the first to take a message has it.
    pub fn listen(&self, owner: &Owner, surface: Surface) -> Listener {
        let mut slots = self.lock();
        let slot = slots.entry(owner.clone()).or_default();
        slot.listeners.push(surface);
        Listener { inbox: self.clone(), owner: owner.clone(), surface, arrived: slot.arrived.clone() }
    }

    /// Wakes whoever listens for a member's messages.
    pub fn arrived(&self, owner: &Owner) {
        if let Some(slot) = self.lock().get(owner) {
            slot.arrived.notify_waiters();
        }
    }

    /// A surface that listens for a member right now.
    pub fn listening(&self, owner: &Owner) -> Option<Surface> {
        self.lock().get(owner).and_then(|slot| slot.listeners.first().copied())
    }

    pub fn is_taken(&self, owner: &Owner, event_seq: i64) -> bool {
        self.lock().get(owner).is_some_and(|slot| slot.taken.contains(&event_seq))
    }

    /// Takes those of the messages that nobody else has taken.
    pub fn take(&self, owner: &Owner, pending: impl IntoIterator<Item = i64>) -> Taken {
        let mut slots = self.lock();
        let slot = slots.entry(owner.clone()).or_default();
        let event_seqs: HashSet<i64> = pending.into_iter().filter(|seq| slot.taken.insert(*seq)).collect();
        if slot.is_idle() {
            slots.remove(owner);
        }
        Taken { inbox: self.clone(), owner: owner.clone(), event_seqs }
    }

    /// Takes what is pending and nobody else has taken, oldest first. `look` says what is pending.
    ///
    /// Another surface may confirm a message, and let go of it, after the look and before the taking: it would be taken
    /// although it was shown. What is still pending once it is taken is nobody else's, so there is a second look.
    pub fn take_pending<E>(
        &self,
        owner: &Owner,
        mut look: impl FnMut() -> Result<Vec<i64>, E>,
    ) -> Result<(Taken, Vec<i64>), E> {
        let mut taken = self.take(owner, look()?);
        let mut pending = look()?;
        pending.retain(|seq| taken.event_seqs.contains(seq));
        let keep: HashSet<i64> = pending.iter().copied().collect();
        taken.confirmed(&taken.event_seqs.difference(&keep).copied().collect());
        Ok((taken, pending))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Puts messages back before anyone was shown them.
    pub fn give_back(&mut self, event_seqs: impl IntoIterator<Item = i64>) {
        let rest: HashSet<i64> = event_seqs.into_iter().filter(|seq| self.event_seqs.remove(seq)).collect();
        drop(Taken { inbox: self.inbox.clone(), owner: self.owner.clone(), event_seqs: rest });
    }

    /// Lets go of messages that were confirmed: they are nobody's to take any more.
    pub fn confirmed(&mut self, event_seqs: &HashSet<i64>) {
        let mut slots = self.inbox.lock();
        let Some(slot) = slots.get_mut(&self.owner) else { return };
        for seq in event_seqs {
            if self.event_seqs.remove(seq) {
                slot.taken.remove(seq);
            }
        }
        if slot.is_idle() {
            slots.remove(&self.owner);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.event_seqs.is_empty() {
            return;
        }
        let mut slots = self.inbox.lock();
        if let Some(slot) = slots.get_mut(&self.owner) {
            slot.taken.retain(|seq| !self.event_seqs.contains(seq));
            // Somebody else may have listened in vain while these were taken.
            slot.arrived.notify_waiters();
            if slot.is_idle() {
                slots.remove(&self.owner);
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut slots = self.inbox.lock();
        if let Some(slot) = slots.get_mut(&self.owner) {
            if let Some(index) = slot.listeners.iter().position(|surface| *surface == self.surface) {
                slot.listeners.swap_remove(index);
            }
            if slot.is_idle() {
                slots.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        ("room".into(), AgentId::trusted("a"))
    }

    #[test]
    fn two_surfaces_cannot_take_the_same_message() {
        let inbox = Inbox::default();
        let first = inbox.take(&owner(), [1, 2]);
        let second = inbox.take(&owner(), [1, 2, 3]);
        assert_eq!(first.event_seqs, HashSet::from([1, 2]));
        assert_eq!(second.event_seqs, HashSet::from([3]));
        drop(first);
        assert_eq!(inbox.take(&owner(), [1, 2]).event_seqs.len(), 2, "what was not shown is given back");
    }

    #[test]
    fn what_another_surface_confirms_between_the_look_and_the_taking_is_not_shown_again() {
        let inbox = Inbox::default();
        let mut other = inbox.take(&owner(), [1]);
        let mut looks = 0;
        let look = || {
            looks += 1;
            // It was pending when we looked; then the other surface confirmed it and let go.
            other.confirmed(&HashSet::from([1]));
            Ok::<_, ()>(if looks == 1 { vec![1, 2] } else { vec![2] })
        };
        let (taken, mine) = inbox.take_pending(&owner(), look).unwrap();
        assert_eq!((mine, &taken.event_seqs), (vec![2], &HashSet::from([2])));
        drop((taken, other));
        assert!(inbox.lock().is_empty());
    }

    #[tokio::test]
    async fn giving_back_wakes_whoever_listens() {
        let inbox = Inbox::default();
        let mut taken = inbox.take(&owner(), [1, 2]);
        let listener = inbox.listen(&owner(), Surface::Wait);
        assert_eq!(inbox.listening(&owner()), Some(Surface::Wait));
        let arrived = listener.arrived.clone();
        let woken = arrived.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        taken.confirmed(&HashSet::from([1]));
        drop(taken);
        woken.await;
        assert_eq!(inbox.take(&owner(), [1, 2]).event_seqs.len(), 2);
        drop(listener);
        assert!(inbox.lock().is_empty(), "nothing is kept for members nobody listens for");
    }
}
