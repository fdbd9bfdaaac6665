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
    /// Taken when the waiter is told; the place stays occupied until the wait itself ends.
    tell: Option<oneshot::Sender<Wait>>,
}

/// A member's place. Dropping it, by whatever end of the wait, frees it at once.
#[derive(Debug)]
pub struct Place {
    waiters: Waiters,
    room: RoomId,
    agent: AgentId,
    ticket: u64,
    /// Resolves when there is something to tell.
    pub told: oneshot::Receiver<Wait>,
}

impl Waiters {
    /// Takes the member's place. There is one: a second listener would take turns from the first. A listener whose
    /// process lives no more is none, even if its connection has not been seen to end.
    pub fn enter(
        &self,
        room: &RoomId,
        agent: &AgentId,
        waiting: Waiting,
        pid: Option<u32>,
        lives: impl Fn(u32) -> bool,
    ) -> Result<Place, Error> {
        let mut places = self.lock();
        let first = places.get(room).and_then(|places| places.get(agent));
        if let Some(first) = first.filter(|first| first.pid.is_none_or(lives)) {
            let whose = first.pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            return Err(Error::new(ErrorCode::DuplicateListener, format!("{agent} is already waiting, in {whose}"))
                .detail("pid", first.pid));
        }
        let ticket = self.0.tickets.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        let waiter = Waiter { ticket, waiting, pid, tell: Some(tell) };
        places.entry(room.clone()).or_default().insert(agent.clone(), waiter);
        Ok(Place { waiters: self.clone(), room: room.clone(), agent: agent.clone(), ticket, told })
    }

    /// How a member waits, as the rules see it. One that was told already waits no more.
    pub fn waiting(&self, room: &RoomId, agent: &AgentId) -> Waiting {
        let places = self.lock();
        let place = places.get(room).and_then(|places| places.get(agent));
        place.filter(|place| place.tell.is_some()).map_or(Waiting::No, |place| place.waiting)
    }

    /// Tells a member how its wait ended.
    pub fn tell(&self, room: &RoomId, agent: &AgentId, answer: Wait) {
        let mut places = self.lock();
        let place = places.get_mut(room).and_then(|places| places.get_mut(agent));
        let tell = place.and_then(|place| place.tell.take());
        drop(places);
        if let Some(tell) = tell {
            // Whoever waited may be gone this instant; its next wait tells it again.
            let _ = tell.send(answer);
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
