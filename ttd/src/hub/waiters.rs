//! The members who are in a wait at this moment, each with one place to be told at.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tt_proto::turn::Wait;
use tt_proto::{AgentId, Error, ErrorCode, RoomId};

use crate::stick::Waiting;

#[derive(Debug, Clone, Default)]
pub struct Waiters(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    places: Mutex<HashMap<(RoomId, AgentId), Waiter>>,
    tickets: AtomicU64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    waiting: Waiting,
    pid: Option<u32>,
    /// Taken when the waiter is told; the place stays occupied until the wait itself ends.
    tell: Option<oneshot::Sender<Wait>>,
}

/// A member's place. Dropping it, by whatever end of the wait, frees it at once.
#[derive(Debug)]
pub struct Place {
    waiters: Waiters,
    key: (RoomId, AgentId),
    ticket: u64,
    /// Resolves when there is something to tell.
    pub told: oneshot::Receiver<Wait>,
}

impl Waiters {
    /// Takes the member's place. There is one: a second listener would take turns from the first.
    pub fn enter(&self, room: &RoomId, agent: &AgentId, waiting: Waiting, pid: Option<u32>) -> Result<Place, Error> {
        let key = (room.clone(), agent.clone());
        let mut places = self.lock();
        if let Some(first) = places.get(&key) {
            let whose = first.pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            return Err(Error::new(ErrorCode::DuplicateListener, format!("{agent} is already waiting, in {whose}"))
                .detail("pid", first.pid));
        }
        let ticket = self.0.tickets.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        places.insert(key.clone(), Waiter { ticket, waiting, pid, tell: Some(tell) });
        Ok(Place { waiters: self.clone(), key, ticket, told })
    }

    /// How a member waits, as the rules see it. One that was told already waits no more.
    pub fn waiting(&self, room: &RoomId, agent: &AgentId) -> Waiting {
        let places = self.lock();
        // Asked for every member at every command, and mostly nobody waits.
        if places.is_empty() {
            return Waiting::No;
        }
        let place = places.get(&(room.clone(), agent.clone()));
        place.filter(|place| place.tell.is_some()).map_or(Waiting::No, |place| place.waiting)
    }

    /// Tells a member how its wait ended.
    pub fn tell(&self, room: &RoomId, agent: &AgentId, answer: Wait) {
        let tell = self.lock().get_mut(&(room.clone(), agent.clone())).and_then(|place| place.tell.take());
        if let Some(tell) = tell {
            // Whoever waited may be gone this instant; its next wait tells it again.
            let _ = tell.send(answer);
        }
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(RoomId, AgentId), Waiter>> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.waiters.lock();
        if places.get(&self.key).is_some_and(|place| place.ticket == self.ticket) {
            places.remove(&self.key);
        }
    }
}
