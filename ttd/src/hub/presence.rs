//! When each agent was last active, kept in memory and written behind.
//!
//! Written for every sign of life these times would cost a commit each; lost in a crash they cost a minute's doubt.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tt_proto::{AgentId, RoomId, Timestamp};

#[derive(Debug, Default)]
pub struct Presence {
    times: Mutex<Times>,
    unwritten: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct Times {
    seen: HashMap<AgentId, Timestamp>,
    waited: HashMap<RoomId, HashMap<AgentId, Timestamp>>,
    fresh_seen: HashSet<AgentId>,
    fresh_waited: HashSet<(RoomId, AgentId)>,
}

/// What has changed since it was last written.
#[derive(Debug, Default)]
pub struct Unwritten {
    pub seen: Vec<(AgentId, Timestamp)>,
    pub waited: Vec<(RoomId, AgentId, Timestamp)>,
}

impl Presence {
    /// Notes a sign of life.
    pub fn seen(&self, agent: &AgentId, now: Timestamp) {
        let mut times = self.lock();
        times.seen.insert(agent.clone(), now);
        if times.fresh_seen.insert(agent.clone()) {
            self.unwritten.notify_one();
        }
    }

    /// Notes that an agent waits, or stopped waiting.
    pub fn waited(&self, room: &RoomId, agent: &AgentId, now: Timestamp) {
        let key = (room.clone(), agent.clone());
        let mut times = self.lock();
        times.waited.entry(room.clone()).or_default().insert(agent.clone(), now);
        if times.fresh_waited.insert(key) {
            self.unwritten.notify_one();
        }
    }

    pub fn last_seen(&self, agent: &AgentId) -> Option<Timestamp> {
        self.lock().seen.get(agent).copied()
    }

    pub fn last_wait(&self, room: &RoomId, agent: &AgentId) -> Option<Timestamp> {
        self.lock().waited.get(room)?.get(agent).copied()
    }

    /// Resolves when there is something to write behind.
    pub async fn changed(&self) {
        self.unwritten.notified().await;
    }

    /// Hands out what is to be written.
    pub fn take_unwritten(&self) -> Unwritten {
        let mut times = self.lock();
        let seen = std::mem::take(&mut times.fresh_seen);
        let waited = std::mem::take(&mut times.fresh_waited);
        Unwritten {
            seen: seen.into_iter().filter_map(|agent| times.seen.get(&agent).map(|at| (agent, *at))).collect(),
            waited: waited
                .into_iter()
                .filter_map(|(room, agent)| {
                    let at = *times.waited.get(&room)?.get(&agent)?;
                    Some((room, agent, at))
                })
                .collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
