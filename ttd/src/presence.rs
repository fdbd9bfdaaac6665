//! When each agent was last active. Seen in memory and stored later: storing every sign of life would cost a commit each,
//! and after a crash at most [`STORE_INTERVAL`] of it is missing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tt_proto::{AgentId, RoomId};
use tt_rules::LeaseTime;

#[derive(Debug, Default)]
pub struct Presence {
    times: Mutex<Times>,
    unstored: tokio::sync::Notify,
}

/// A sign of life is stored at once if the last stored one is older than this, and otherwise later. So no agent was ever
/// seen later than this after what is stored for it.
pub const STORE_INTERVAL: Duration = Duration::from_secs(60);

/// The most agents that are remembered. Beyond that, those seen longest ago are forgotten once they are stored: anybody can call
/// under any name, and only members have rows to be stored in.
const MAX_AGENTS: usize = 4096;

#[derive(Debug, Default)]
struct Times {
    seen: HashMap<AgentId, Seen>,
    waited: HashMap<RoomId, HashMap<AgentId, Seen>>,
}

/// A time, and the last one of its kind that was stored.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at: LeaseTime,
    stored: Option<LeaseTime>,
}

/// What has changed since it was last stored.
#[derive(Debug, Default)]
pub struct Unstored {
    pub seen: Vec<(AgentId, LeaseTime)>,
    pub waited: Vec<(RoomId, AgentId, LeaseTime)>,
}

impl Presence {
    /// Notes a sign of life.
    pub fn seen(&self, agent: &AgentId, now: LeaseTime) {
        if note(&mut self.lock().seen, agent.clone(), now) {
            self.unstored.notify_one();
        }
    }

    /// Notes that an agent waits, or stopped waiting.
    pub fn waited(&self, room: &RoomId, agent: &AgentId, now: LeaseTime) {
        if note(self.lock().waited.entry(room.clone()).or_default(), agent.clone(), now) {
            self.unstored.notify_one();
        }
    }

    /// Forgets that an agent waited: it was given the turn.
    pub fn has_its_turn(&self, room: &RoomId, agent: &AgentId) {
        if let Some(waited) = self.lock().waited.get_mut(room) {
            waited.remove(agent);
        }
    }

    /// Looks up when members of a room were last seen and last waited.
    pub fn of_room<T>(
        &self,
        room: &RoomId,
        look: impl FnOnce(&dyn Fn(&AgentId) -> (Option<LeaseTime>, Option<LeaseTime>)) -> T,
    ) -> T {
        let times = self.lock();
        let waited = times.waited.get(room);
        let at = |seen: &Seen| seen.at;
        look(&|agent| (times.seen.get(agent).map(at), waited.and_then(|waited| waited.get(agent)).map(at)))
    }

    /// Resolves when there is something to store now.
    pub async fn changed(&self) {
        self.unstored.notified().await;
    }

    /// How many waits are remembered.
    pub fn count(&self) -> usize {
        self.lock().waited.values().map(HashMap::len).sum()
    }

    /// Forgets a room that was deleted.
    pub fn forget_room(&self, room: &RoomId) {
        self.lock().waited.remove(room);
    }

    /// Returns what is to be stored.
    pub fn take_unstored(&self) -> Unstored {
        let times = &mut *self.lock();
        let unstored = Unstored {
            seen: fresh(&mut times.seen),
            waited: times
                .waited
                .iter_mut()
                .flat_map(|(room, waited)| fresh(waited).into_iter().map(|(agent, at)| (room.clone(), agent, at)))
                .collect(),
        };
        if times.seen.len() > MAX_AGENTS {
            let mut all: Vec<LeaseTime> = times.seen.values().map(|seen| seen.at).collect();
            let newest = all.len() - MAX_AGENTS / 2;
            let (_, middle, _) = all.select_nth_unstable(newest);
            let middle = *middle;
            times.seen.retain(|_, seen| seen.at > middle);
        }
        unstored
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes a time. Returns whether it is to be stored now.
fn note<K: std::hash::Hash + Eq>(times: &mut HashMap<K, Seen>, key: K, now: LeaseTime) -> bool {
    let seen = times.entry(key).or_insert(Seen { at: now, stored: None });
    seen.at = now;
    seen.stored.is_none_or(|stored| stored + STORE_INTERVAL <= now)
}

fn fresh<K: Clone>(times: &mut HashMap<K, Seen>) -> Vec<(K, LeaseTime)> {
    let unstored = times.iter_mut().filter(|(_, seen)| seen.stored != Some(seen.at));
    unstored.map(|(key, seen)| (key.clone(), *seen.stored.insert(seen.at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_sign_of_life_in_a_minute_is_stored_at_once_and_the_others_later() {
        let presence = Presence::default();
        let (agent, at) = (AgentId::trusted("a"), |seconds: i64| LeaseTime::from_millis(seconds * 1000));
        presence.seen(&agent, at(0));
        presence.changed().await;
        assert_eq!(presence.take_unstored().seen, [(agent.clone(), at(0))]);
        presence.seen(&agent, at(59));
        let quiet = tokio::time::timeout(Duration::ZERO, presence.changed()).await;
        assert!(quiet.is_err(), "stored + a minute is no earlier");
        let seen = presence.of_room(&"room".into(), |last| last(&agent).0);
        assert_eq!(seen, Some(at(59)));
        presence.seen(&agent, at(60));
        presence.changed().await;
        presence.seen(&AgentId::trusted("b"), at(61));
        assert_eq!(presence.take_unstored().seen.len(), 2, "whatever else there is goes with it");
        assert_eq!(presence.take_unstored().seen, []);
    }

    #[test]
    fn callers_under_ever_new_names_are_forgotten_and_those_seen_last_are_not() {
        let (presence, at) = (Presence::default(), |seconds: i64| LeaseTime::from_millis(seconds * 1000));
        for n in 0..20_000 {
            presence.seen(&AgentId::trusted(format!("a:{n}")), at(n));
            presence.seen(&AgentId::trusted("member"), at(n));
            if n % 100 == 0 {
                presence.take_unstored();
            }
        }
        let remembered = presence.lock().seen.len();
        assert!(remembered <= MAX_AGENTS + 101, "{remembered}");
        assert_eq!(presence.of_room(&"room".into(), |last| last(&AgentId::trusted("member")).0), Some(at(19_999)));
    }
}
