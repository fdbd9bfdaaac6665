//! When each agent was last active, kept in memory and written behind.
//!
//! Written for every sign of life these times would cost a commit each; lost in a crash they cost a minute's doubt.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tt_proto::{AgentId, RoomId, WallTime};

#[derive(Debug, Default)]
pub struct Presence {
    times: Mutex<Times>,
    unwritten: tokio::sync::Notify,
}

/// A sign of life is written behind at once where the last one written is older than this, and else not until then. So
/// nobody is written down more often, and nobody was ever seen later than this after what is written.
pub const WRITE_BEHIND: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Times {
    seen: HashMap<AgentId, Kept>,
    waited: HashMap<RoomId, HashMap<AgentId, Kept>>,
}

/// A time, and the one of its kind that was written last.
#[derive(Debug, Clone, Copy)]
struct Kept {
    at: WallTime,
    written: Option<WallTime>,
}

/// What has changed since it was last written.
#[derive(Debug, Default)]
pub struct Unwritten {
    pub seen: Vec<(AgentId, WallTime)>,
    pub waited: Vec<(RoomId, AgentId, WallTime)>,
}

impl Presence {
    /// Notes a sign of life.
    pub fn seen(&self, agent: &AgentId, now: WallTime) {
        if keep(&mut self.lock().seen, agent.clone(), now) {
            self.unwritten.notify_one();
        }
    }

    /// Notes that an agent waits, or stopped waiting.
    pub fn waited(&self, room: &RoomId, agent: &AgentId, now: WallTime) {
        if keep(self.lock().waited.entry(room.clone()).or_default(), agent.clone(), now) {
            self.unwritten.notify_one();
        }
    }

    pub fn last_seen(&self, agent: &AgentId) -> Option<WallTime> {
        self.lock().seen.get(agent).map(|kept| kept.at)
    }

    pub fn last_wait(&self, room: &RoomId, agent: &AgentId) -> Option<WallTime> {
        self.lock().waited.get(room)?.get(agent).map(|kept| kept.at)
    }

    /// Resolves when there is something to write behind now.
    pub async fn changed(&self) {
        self.unwritten.notified().await;
    }

    /// Hands out what is to be written.
    pub fn take_unwritten(&self) -> Unwritten {
        let times = &mut *self.lock();
        Unwritten {
            seen: fresh(&mut times.seen),
            waited: times
                .waited
                .iter_mut()
                .flat_map(|(room, waited)| fresh(waited).into_iter().map(|(agent, at)| (room.clone(), agent, at)))
                .collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a time; true when it is to be written now.
fn keep<K: std::hash::Hash + Eq>(times: &mut HashMap<K, Kept>, key: K, now: WallTime) -> bool {
    let kept = times.entry(key).or_insert(Kept { at: now, written: None });
    kept.at = now;
    kept.written.is_none_or(|written| written + WRITE_BEHIND <= now)
}

fn fresh<K: Clone>(times: &mut HashMap<K, Kept>) -> Vec<(K, WallTime)> {
    let unwritten = times.iter_mut().filter(|(_, kept)| kept.written != Some(kept.at));
    unwritten.map(|(key, kept)| (key.clone(), *kept.written.insert(kept.at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_sign_of_life_in_a_minute_is_written_at_once_and_the_others_later() {
        let presence = Presence::default();
        let (agent, at) = (AgentId::trusted("a"), |seconds: i64| WallTime::from_millis(seconds * 1000));
        presence.seen(&agent, at(0));
        presence.changed().await;
        assert_eq!(presence.take_unwritten().seen, [(agent.clone(), at(0))]);
        presence.seen(&agent, at(59));
        let quiet = tokio::time::timeout(Duration::ZERO, presence.changed()).await;
        assert!(quiet.is_err(), "stored + a minute is no earlier");
        assert_eq!(presence.last_seen(&agent), Some(at(59)));
        presence.seen(&agent, at(60));
        presence.changed().await;
        presence.seen(&AgentId::trusted("b"), at(61));
        assert_eq!(presence.take_unwritten().seen.len(), 2, "whatever else there is goes with it");
        assert_eq!(presence.take_unwritten().seen, []);
    }
}
