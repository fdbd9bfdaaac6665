//! The members that are in a wait now. Each has one place, at which its wait is ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tt_proto::{AgentId, Error, ErrorCode, RoomId};
use tt_rules::{WaitEnd, Waiting};

#[derive(Debug, Clone, Default)]
pub struct Waiters(Arc<Inner>);

type Places = HashMap<RoomId, HashMap<AgentId, Waiter>>;

#[derive(Debug, Default)]
struct Inner {
    places: Mutex<Places>,
    tickets: AtomicU64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    waiting: Waiting,
    pid: Option<u32>,
    /// Taken when the wait is ended; the place stays occupied until the call itself has ended.
    end: Option<oneshot::Sender<WaitEnd>>,
}

/// A member's place. Dropping it frees it at once, however the wait ended.
#[derive(Debug)]
pub struct Place {
    waiters: Waiters,
    room: RoomId,
    agent: AgentId,
    ticket: u64,
    /// Resolves when the wait is ended.
    pub ended: oneshot::Receiver<WaitEnd>,
}

impl Waiters {
    /// The process whose wait is at a member's place.
    pub fn process_at(&self, room: &RoomId, agent: &AgentId) -> Option<u32> {
        self.lock().get(room).and_then(|places| places.get(agent)).and_then(|waiter| waiter.pid)
    }

    /// Takes the member's place. There is only one: a second wait would take turns from the first. A wait of the process that has
    /// `ended` does not count, even if its connection has not been seen to end.
    pub fn enter(
        &self,
        room: &RoomId,
        agent: &AgentId,
        waiting: Waiting,
        pid: Option<u32>,
        ended: Option<u32>,
    ) -> Result<Place, Error> {
        let mut places = self.lock();
        let first = places.get(room).and_then(|places| places.get(agent));
        if let Some(first) = first.filter(|first| first.pid.is_none() || first.pid != ended) {
            let whose = first.pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            return Err(Error::new(ErrorCode::DuplicateListener, format!("{agent} is already waiting, in {whose}"))
                .detail("pid", first.pid));
        }
        let ticket = self.0.tickets.fetch_add(1, Ordering::Relaxed);
        let (end, is_ended) = oneshot::channel();
        let waiter = Waiter { ticket, waiting, pid, end: Some(end) };
        places.entry(room.clone()).or_default().insert(agent.clone(), waiter);
        Ok(Place { waiters: self.clone(), room: room.clone(), agent: agent.clone(), ticket, ended: is_ended })
    }

    /// Looks up how members of a room wait. One whose wait was ended already waits no more.
    pub fn of_room<T>(&self, room: &RoomId, look: impl FnOnce(&dyn Fn(&AgentId) -> Waiting) -> T) -> T {
        let places = self.lock();
        let places = places.get(room);
        look(&|agent| {
            let waiter = places.and_then(|places| places.get(agent)).filter(|waiter| waiter.end.is_some());
            waiter.map_or(Waiting::No, |waiter| waiter.waiting)
        })
    }

    /// Ends the wait of a member.
    pub fn end(&self, room: &RoomId, agent: &AgentId, end: WaitEnd) {
        let mut places = self.lock();
        let waiter = places.get_mut(room).and_then(|places| places.get_mut(agent));
        let sender = waiter.and_then(|waiter| waiter.end.take());
        drop(places);
        if let Some(sender) = sender {
            // The caller may be gone by now; its next wait gets the same answer.
            let _ = sender.send(end);
        }
    }

    pub fn count(&self) -> usize {
        self.lock().values().map(HashMap::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.waiters.lock();
        let Some(in_room) = places.get_mut(&self.room) else { return };
        if in_room.get(&self.agent).is_some_and(|place| place.ticket == self.ticket) {
            in_room.remove(&self.agent);
        }
        if in_room.is_empty() {
            places.remove(&self.room);
        }
    }
}
