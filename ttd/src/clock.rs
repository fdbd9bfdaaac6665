//! The daemon's only source of time, and there are two of them.
//!
//! **Wall** is the time of day: it stands in the log, for people. It can jump.
//!
//! **Steady** is what every deadline is measured by. It is written like a time of day but runs with the machine's
//! monotonic clock, which stands still while the machine sleeps and knows nothing of a wall clock set an hour off. Its
//! offset is kept per boot, so that it runs on through a restart of the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use tt_proto::WallTime;

#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Steady time less monotonic time.
    offset: AtomicI64,
    /// How far a test has turned the wall clock, and let the steady clock run ahead.
    wall_turned: AtomicI64,
    steady_ahead: AtomicI64,
    advanced: tokio::sync::Notify,
}

/// The clock that stops with the machine.
#[cfg(target_os = "macos")]
const MONOTONIC: ClockId = ClockId::from_raw(libc::CLOCK_UPTIME_RAW);
#[cfg(not(target_os = "macos"))]
const MONOTONIC: ClockId = ClockId::CLOCK_MONOTONIC;

fn monotonic_ms() -> i64 {
    clock_gettime(MONOTONIC).map_or(0, |t| t.tv_sec() * 1000 + t.tv_nsec() / 1_000_000)
}

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn wall() -> WallTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    WallTime::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

impl Clock {
    /// A clock whose two times agree at this moment.
    pub fn new() -> Self {
        let clock = Self::default();
        clock.set_offset(wall().as_millis() - monotonic_ms());
        clock
    }

    /// The offset to remember for this boot.
    pub fn offset(&self) -> i64 {
        self.0.offset.load(Ordering::Relaxed)
    }

    /// Goes on from where an earlier daemon of the same boot left off.
    pub fn set_offset(&self, offset: i64) {
        self.0.offset.store(offset, Ordering::Relaxed);
    }

    /// Steady time.
    pub fn now(&self) -> WallTime {
        WallTime::from_millis(monotonic_ms() + self.offset() + self.0.steady_ahead.load(Ordering::Relaxed))
    }

    /// The time of day.
    pub fn wall(&self) -> WallTime {
        WallTime::from_millis(wall().as_millis() + self.0.wall_turned.load(Ordering::Relaxed))
    }

    /// A steady time as people read it.
    pub fn to_wall(&self, steady: WallTime) -> WallTime {
        let apart = self.wall().as_millis() - self.now().as_millis();
        WallTime::from_millis(steady.as_millis().saturating_add(apart))
    }

    /// Turns the wall clock, as a user or a time server does. For tests.
    pub fn turn_wall(&self, millis: i64) {
        self.0.wall_turned.fetch_add(millis, Ordering::Relaxed);
    }

    /// Lets steady time pass. For tests.
    pub fn advance(&self, by: Duration) {
        self.0.steady_ahead.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.0.advanced.notify_one();
    }

    /// Resolves when steady time has made a leap: whoever sleeps until a deadline looks again.
    pub async fn advanced(&self) {
        self.0.advanced.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turning_the_wall_clock_moves_no_deadline() {
        let clock = Clock::new();
        let (steady, wall) = (clock.now(), clock.wall());
        for hour in [3_600_000, -7_200_000] {
            clock.turn_wall(hour);
            assert!(clock.now().since(steady) < Duration::from_secs(60));
        }
        assert!(clock.wall() < wall, "an hour behind by now");
        assert_eq!(clock.to_wall(clock.now() + Duration::from_secs(5)).since(clock.wall()).as_secs_f32().round(), 5.0);
    }
}
