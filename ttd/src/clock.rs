//! The daemon's only source of time. It has three clocks, each with a type of its own.
//!
//! **Wall time** is the time of day, for people. It can jump.
//!
//! **Lease time** measures leases and presence. It follows the machine's monotonic clock, which stands still in suspend.
//!
//! **Deadline time** measures the deadlines of messages. It follows the clock that runs on in suspend.
//!
//! The last two begin near the time of day, and their offsets are stored per boot, so that they run on through a restart of
//! the daemon. A wall clock that is set does not move them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use tokio::sync::futures::Notified;
use tt_proto::WallTime;
use tt_rules::{DeadlineTime, LeaseTime, Now};
use tt_store::sqlite::ClockOffsets;

#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Lease time less the machine's clock that stands still in suspend.
    lease_offset: AtomicI64,
    /// Deadline time less the machine's clock that runs on in suspend.
    deadline_offset: AtomicI64,
    /// How far a test has set the wall clock, and let the other two run ahead.
    wall_turned: AtomicI64,
    advanced_by: AtomicI64,
    advanced: tokio::sync::Notify,
    /// Set for a clock that only tests move.
    stopped_at: Option<i64>,
}

/// The clock that stands still in suspend.
#[cfg(target_os = "macos")]
const MONOTONIC: ClockId = ClockId::from_raw(libc::CLOCK_UPTIME_RAW);
#[cfg(not(target_os = "macos"))]
const MONOTONIC: ClockId = ClockId::CLOCK_MONOTONIC;

/// The clock that runs on in suspend.
#[cfg(target_os = "linux")]
const BOOT: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const BOOT: ClockId = ClockId::CLOCK_MONOTONIC;

/// How old the date of a report may be.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

fn millis(clock: ClockId) -> i64 {
    clock_gettime(clock).map_or(0, |t| t.tv_sec() * 1000 + t.tv_nsec() / 1_000_000)
}

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn wall() -> WallTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    WallTime::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

impl Clock {
    /// A clock whose three times agree now.
    pub fn new() -> Self {
        let clock = Self::default();
        let wall = wall().as_millis();
        clock.set_offsets(ClockOffsets { lease: wall - millis(MONOTONIC), deadline: wall - millis(BOOT) });
        clock
    }

    /// A clock that stands at this time, in milliseconds, until [`Clock::advance`] moves it. For simulations.
    pub fn stopped(millis: i64) -> Self {
        Self(Arc::new(Inner { stopped_at: Some(millis), ..Inner::default() }))
    }

    /// The offsets to store for this boot.
    pub fn offsets(&self) -> ClockOffsets {
        let load = |offset: &AtomicI64| offset.load(Ordering::Relaxed);
        ClockOffsets { lease: load(&self.0.lease_offset), deadline: load(&self.0.deadline_offset) }
    }

    /// Continues from where an earlier daemon of the same boot left off.
    pub fn set_offsets(&self, offsets: ClockOffsets) {
        self.0.lease_offset.store(offsets.lease, Ordering::Relaxed);
        self.0.deadline_offset.store(offsets.deadline, Ordering::Relaxed);
    }

    /// This moment on all three clocks.
    pub fn now(&self) -> Now {
        let (offsets, advanced) = (self.offsets(), self.0.advanced_by.load(Ordering::Relaxed));
        if let Some(stopped) = self.0.stopped_at {
            let millis = stopped + advanced;
            return Now {
                lease: LeaseTime::from_millis(millis),
                deadline: DeadlineTime::from_millis(millis),
                wall: WallTime::from_millis(millis + self.0.wall_turned.load(Ordering::Relaxed)),
            };
        }
        Now {
            lease: LeaseTime::from_millis(millis(MONOTONIC) + offsets.lease + advanced),
            deadline: DeadlineTime::from_millis(millis(BOOT) + offsets.deadline + advanced),
            wall: self.wall(),
        }
    }

    /// When another process of this machine read its monotonic clock. None if that was not within the last hour, because such a
    /// process counts from another beginning (a time namespace).
    pub fn lease_at(&self, monotonic_millis: i64) -> Option<LeaseTime> {
        if self.0.stopped_at.is_some() {
            return None;
        }
        let age = u64::try_from(millis(MONOTONIC).saturating_sub(monotonic_millis)).ok().map(Duration::from_millis)?;
        (age < MAX_AGE).then(|| self.now().lease - age)
    }

    /// The time of day.
    pub fn wall(&self) -> WallTime {
        WallTime::from_millis(wall().as_millis() + self.0.wall_turned.load(Ordering::Relaxed))
    }

    /// Sets the wall clock, as a user or a time server does. For tests.
    pub fn turn_wall(&self, millis: i64) {
        self.0.wall_turned.fetch_add(millis, Ordering::Relaxed);
    }

    /// Lets time pass on the other two clocks. For tests.
    pub fn advance(&self, by: Duration) {
        self.0.advanced_by.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.0.advanced.notify_waiters();
    }

    /// Resolves when a test let time pass since this was called.
    pub fn advanced(&self) -> Notified<'_> {
        self.0.advanced.notified()
    }

    /// Resolves at this time.
    pub async fn until(&self, at: LeaseTime) {
        loop {
            let advanced = self.advanced();
            let left = at.since(self.now().lease);
            if left.is_zero() {
                return;
            }
            tokio::select! {
                // A millisecond more, because the clock is rounded down.
                () = tokio::time::sleep(left + Duration::from_millis(1)) => {}
                () = advanced => {}
            }
        }
    }
}

impl tt_store::Clock for Clock {
    fn now(&self) -> Now {
        Clock::now(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_of_the_monotonic_clock_is_the_same_moment_whatever_the_wall_clock_does() {
        let clock = Clock::new();
        let (at, began) = (clock.now().lease, millis(MONOTONIC));
        clock.turn_wall(-7_200_000);
        let dated = clock.lease_at(began).unwrap();
        assert!(dated.since(at) < Duration::from_secs(60) && dated <= clock.now().lease);
        for elsewhere in [began + 7_200_000, began - 7_200_000, i64::MIN, i64::MAX] {
            assert_eq!(clock.lease_at(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn setting_the_wall_clock_moves_no_deadline() {
        let clock = Clock::new();
        let before = clock.now();
        for hour in [3_600_000, -7_200_000] {
            clock.turn_wall(hour);
            let now = clock.now();
            assert!(now.lease.since(before.lease) < Duration::from_secs(60));
            assert!(now.deadline.since(before.deadline) < Duration::from_secs(60));
        }
        let now = clock.now();
        assert!(now.wall < before.wall, "an hour behind by now");
        let shown = now.to_wall(now.lease + Duration::from_secs(5));
        assert_eq!(shown.since(now.wall), Duration::from_secs(5));
    }
}
