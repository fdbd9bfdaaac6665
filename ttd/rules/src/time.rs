//! The three times a rule deals with. Each is a type of its own, so that one cannot be compared with or stored as another.
//!
//! - [`LeaseTime`] measures leases and presence. It stands still while the machine is suspended.
//! - [`DeadlineTime`] measures the deadlines of messages. It runs on while the machine is suspended.
//! - [`WallTime`] is what people read. It can jump, so no rule measures by it.

use std::time::Duration;

use tt_proto::WallTime;

macro_rules! measured_time {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(i64);

        impl $name {
            pub const fn from_millis(millis: i64) -> Self {
                Self(millis)
            }

            pub const fn as_millis(self) -> i64 {
                self.0
            }

            /// The duration since `earlier`, or zero if `earlier` is not earlier.
            pub fn since(self, earlier: Self) -> Duration {
                Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
            }
        }

        impl std::ops::Add<Duration> for $name {
            type Output = Self;

            fn add(self, rhs: Duration) -> Self {
                Self(self.0.saturating_add(i64::try_from(rhs.as_millis()).unwrap_or(i64::MAX)))
            }
        }

        impl std::ops::Sub<Duration> for $name {
            type Output = Self;

            fn sub(self, rhs: Duration) -> Self {
                Self(self.0.saturating_sub(i64::try_from(rhs.as_millis()).unwrap_or(i64::MAX)))
            }
        }
    )+};
}

measured_time! {
    /// Milliseconds on the clock that stands still in suspend.
    LeaseTime;
    /// Milliseconds on the clock that runs on in suspend.
    DeadlineTime;
}

/// One moment on all three clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub lease: LeaseTime,
    pub deadline: DeadlineTime,
    pub wall: WallTime,
}

impl Now {
    /// A lease time as people read it.
    pub fn to_wall(&self, at: LeaseTime) -> WallTime {
        let apart = self.wall.as_millis().saturating_sub(self.lease.as_millis());
        WallTime::from_millis(at.as_millis().saturating_add(apart))
    }

    /// A deadline as people read it.
    pub fn deadline_to_wall(&self, at: DeadlineTime) -> WallTime {
        let apart = self.wall.as_millis().saturating_sub(self.deadline.as_millis());
        WallTime::from_millis(at.as_millis().saturating_add(apart))
    }

    /// A time of day that another program wrote down, as a lease time. It was not later than now: if it says so, the wall clock
    /// was set back since.
    pub fn to_lease(&self, at: WallTime) -> LeaseTime {
        self.lease - self.wall.since(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_as_old_as_the_wall_clock_says_and_never_in_the_future() {
        let (lease, deadline) = (LeaseTime::from_millis(5000), DeadlineTime::from_millis(0));
        let now = Now { lease, deadline, wall: WallTime::from_millis(90_000) };
        assert_eq!(now.to_lease(WallTime::from_millis(88_000)), LeaseTime::from_millis(3000));
        assert_eq!(now.to_lease(WallTime::from_millis(990_000)), lease);
        assert_eq!(now.to_wall(now.to_lease(WallTime::from_millis(88_000))), WallTime::from_millis(88_000));
    }

    #[test]
    fn adding_for_ever_stays_for_ever() {
        let never = LeaseTime::from_millis(1) + Duration::MAX;
        assert_eq!(never, LeaseTime::from_millis(i64::MAX));
        assert_eq!(LeaseTime::from_millis(1).since(never), Duration::ZERO);
    }
}
