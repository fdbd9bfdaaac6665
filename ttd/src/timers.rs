//! Timers by key, and one sleep for the next that is due. What a timer is for is stored (a room, a delivery), so after a
//! restart the timers are set again from there.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tt_proto::RoomId;
use tt_rules::{DeadlineTime, Due, LeaseTime, Now, TimerKey};

use crate::boot_sleep;
use crate::clock::Clock;

#[derive(Debug, Default)]
pub struct Timers {
    pending: Mutex<Pending>,
    earlier: tokio::sync::Notify,
}

/// The timers by when they are due, on each clock.
#[derive(Debug, Default)]
struct Pending {
    by_key: HashMap<Arc<TimerKey>, Due>,
    by_lease: BTreeSet<(LeaseTime, Arc<TimerKey>)>,
    by_deadline: BTreeSet<(DeadlineTime, Arc<TimerKey>)>,
}

impl Timers {
    /// Sets the timer of a key, or clears it. The sleep is disturbed only if it would last too long.
    pub fn set(&self, key: TimerKey, due: Option<Due>) {
        let mut pending = self.lock();
        if pending.by_key.get(&key) == due.as_ref() {
            return;
        }
        // What is slept for. It may be this key's own timer, which mostly moves away: then the sleep ends once for nothing.
        let earlier = match due {
            Some(Due::Lease(at)) => pending.by_lease.first().is_none_or(|(first, _)| at < *first),
            Some(Due::Deadline(at)) => pending.by_deadline.first().is_none_or(|(first, _)| at < *first),
            None => false,
        };
        pending.remove(&key);
        if let Some(due) = due {
            pending.insert(key, due);
        }
        if earlier {
            self.earlier.notify_one();
        }
    }

    /// Sets the timer of a key that has none. What is read from the store may be older than what was set meanwhile.
    pub fn set_if_unset(&self, key: TimerKey, due: Due) {
        let mut pending = self.lock();
        if !pending.by_key.contains_key(&key) {
            pending.insert(key, due);
            self.earlier.notify_one();
        }
    }

    /// Clears the timers of a room that is no more.
    pub fn forget_room(&self, room_id: &RoomId) {
        let mut pending = self.lock();
        let of_room = |key: &&Arc<TimerKey>| key.room_id() == room_id;
        let keys: Vec<Arc<TimerKey>> = pending.by_key.keys().filter(of_room).cloned().collect();
        keys.iter().for_each(|key| pending.remove(key));
    }

    /// Whether a message or a reminder waits for its time.
    pub fn has_deadlines(&self) -> bool {
        !self.lock().by_deadline.is_empty()
    }

    /// Resolves with the keys that are due, once some are. Their timers are cleared.
    pub async fn next(&self, clock: &Clock) -> Vec<TimerKey> {
        loop {
            let advanced = clock.advanced();
            let now = clock.now();
            let (due, rests) = {
                let mut pending = self.lock();
                (pending.take_due(now), pending.rests(now))
            };
            if !due.is_empty() {
                return due;
            }
            tokio::select! {
                () = rests.pass() => {}
                () = self.earlier.notified() => {}
                () = advanced => {}
            }
        }
    }

    /// The keys that are due. Their timers are cleared.
    pub fn take_due(&self, now: Now) -> Vec<TimerKey> {
        self.lock().take_due(now)
    }

    /// How long until the next timer is due.
    pub fn next_in(&self, now: Now) -> Option<Duration> {
        let rests = self.lock().rests(now);
        rests.lease.into_iter().chain(rests.deadline).min()
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn insert(&mut self, key: TimerKey, due: Due) {
        let key = Arc::new(key);
        match due {
            Due::Lease(at) => self.by_lease.insert((at, key.clone())),
            Due::Deadline(at) => self.by_deadline.insert((at, key.clone())),
        };
        self.by_key.insert(key, due);
    }

    fn remove(&mut self, key: &TimerKey) {
        match self.by_key.remove_entry(key) {
            Some((key, Due::Lease(at))) => self.by_lease.remove(&(at, key)),
            Some((key, Due::Deadline(at))) => self.by_deadline.remove(&(at, key)),
            None => false,
        };
    }

    fn take_due(&mut self, now: Now) -> Vec<TimerKey> {
        let lease = self.by_lease.iter().take_while(|(at, _)| *at <= now.lease).map(|(_, key)| key);
        let deadline = self.by_deadline.iter().take_while(|(at, _)| *at <= now.deadline).map(|(_, key)| key);
        let due: Vec<TimerKey> = lease.chain(deadline).map(|key| TimerKey::clone(key)).collect();
        due.iter().for_each(|key| self.remove(key));
        due
    }

    fn rests(&self, now: Now) -> Rests {
        Rests {
            lease: self.by_lease.first().map(|(at, _)| at.since(now.lease)),
            deadline: self.by_deadline.first().map(|(at, _)| at.since(now.deadline)),
        }
    }
}

/// How long until the next timer of each clock is due.
struct Rests {
    lease: Option<Duration>,
    deadline: Option<Duration>,
}

impl Rests {
    /// Sleeps until one of them is over, or for less.
    async fn pass(self) {
        // A millisecond more, because the clocks are rounded down: the timer is due on waking.
        let rounding = Duration::from_millis(1);
        let lease = async {
            match self.lease {
                Some(rest) => tokio::time::sleep(rest + rounding).await,
                None => std::future::pending().await,
            }
        };
        let deadline = async {
            match self.deadline {
                Some(rest) => boot_sleep::sleep(rest + rounding).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = lease => {}
            () = deadline => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str) -> TimerKey {
        TimerKey::Room(name.into())
    }

    #[tokio::test]
    async fn each_key_has_its_own_timer_and_both_clocks_count() {
        let (timers, clock) = (Timers::default(), Clock::new());
        let now = clock.now();
        let delivery = TimerKey::Delivery("r".into(), 7, tt_proto::AgentId::trusted("a"));
        timers.set(room("r"), Some(Due::Lease(now.lease + Duration::from_secs(60))));
        timers.set(delivery.clone(), Some(Due::Deadline(now.deadline + Duration::from_secs(120))));
        timers.set(room("other"), Some(Due::Lease(now.lease + Duration::from_secs(90))));
        timers.set(room("other"), None);
        clock.advance(Duration::from_secs(61));
        assert_eq!(timers.next(&clock).await, [room("r")]);
        clock.advance(Duration::from_secs(60));
        assert_eq!(timers.next(&clock).await, [delivery], "a command on the room did not touch it");
        assert!(timers.lock().by_key.is_empty());
    }

    #[test]
    fn a_room_that_is_deleted_takes_all_its_timers_with_it() {
        let (timers, now) = (Timers::default(), Clock::new().now());
        let due = Some(Due::Deadline(now.deadline + Duration::from_secs(60)));
        for room in ["r", "other"] {
            timers.set(TimerKey::Room(room.into()), Some(Due::Lease(now.lease + Duration::from_secs(60))));
            timers.set(TimerKey::Delivery(room.into(), 7, tt_proto::AgentId::trusted("a")), due);
            timers.set(TimerKey::Reminder(room.into(), "m".into()), due);
        }
        timers.forget_room(&"r".into());
        let count = || timers.lock().by_key.len();
        assert_eq!((count(), timers.has_deadlines()), (3, true));
        timers.forget_room(&"other".into());
        assert_eq!((count(), timers.has_deadlines()), (0, false));
    }

    #[test]
    fn what_was_set_since_is_not_set_back() {
        let (timers, now) = (Timers::default(), Clock::new().now());
        let after = |seconds| Due::Deadline(now.deadline + Duration::from_secs(seconds));
        timers.set(room("r"), Some(after(10)));
        timers.set_if_unset(room("r"), after(300));
        assert_eq!(timers.next_in(now), Some(Duration::from_secs(10)));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_deadline_is_slept_for_on_the_clock_that_runs_on_in_suspend_and_a_lease_is_not() {
        use std::future::Future;
        let (deadline, lease) = (7_654_321, 6_543_210);
        let (timers, clock) = (Timers::default(), Clock::new());
        let now = clock.now();
        timers.set(room("leased"), Some(Due::Lease(now.lease + Duration::from_secs(lease))));
        timers.set(room("due"), Some(Due::Deadline(now.deadline + Duration::from_secs(deadline))));
        let sleeping = std::pin::pin!(timers.next(&clock));
        assert!(sleeping.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
        assert_eq!([deadline, lease].map(boot_sleep::tests::count), [1, 0]);
    }

    #[tokio::test]
    async fn an_earlier_timer_ends_the_sleep() {
        let (timers, clock) = (Timers::default(), Clock::new());
        let now = clock.now();
        timers.set(room("late"), Some(Due::Lease(now.lease + Duration::from_secs(3600))));
        let set = async {
            tokio::task::yield_now().await;
            timers.set(room("soon"), Some(Due::Lease(now.lease)));
        };
        let (due, ()) = tokio::join!(timers.next(&clock), set);
        assert_eq!(due, [room("soon")]);
    }
}
