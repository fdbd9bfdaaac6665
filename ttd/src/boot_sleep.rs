//! A sleep on the clock that runs on while the machine is suspended. A sleep of the runtime stands still then, and what fell due
//! in suspend would be late by as long as that lasted.

use std::time::Duration;

/// How long is slept at once where the clock cannot be slept on; the caller looks at it again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Sleeps for this long, suspend included, or for less.
pub(crate) async fn sleep(time: Duration) {
    #[cfg(target_os = "linux")]
    if let Ok(timer) = linux::timer(time)
        && timer.readable().await.is_ok()
    {
        return;
    }
    tokio::time::sleep(time.min(LOOK_AGAIN)).await;
}

#[cfg(target_os = "linux")]
mod linux {
    #![expect(
        unsafe_code,
        reason = "a descriptor is registered with the runtime by a call that cannot check its owner"
    )]

    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A descriptor that can be read once the time is over.
    pub(super) fn timer(time: Duration) -> io::Result<AsyncFd<OwnedFd>> {
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        // No time at all would mean never.
        let expiration = Expiration::OneShot(TimeSpec::from_duration(time.max(Duration::from_nanos(1))));
        timer.set(expiration, TimerSetTimeFlags::empty())?;
        let timer = OwnedFd::from(timer);
        // SAFETY: an `OwnedFd` names the same open descriptor for as long as it lives.
        Ok(unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE)? })
    }
}

#[cfg(all(test, target_os = "linux"))]
pub(crate) mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// How many descriptors of this process wait for about this many seconds on the clock that runs on in suspend.
    pub(crate) fn count(seconds: u64) -> usize {
        let infos = std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten();
        let texts = infos.filter_map(|info| std::fs::read_to_string(info.ok()?.path()).ok());
        let rest = |text: &str| text.split("it_value: (").nth(1)?.split(',').next()?.parse::<u64>().ok();
        let is_one = |text: &String| {
            text.contains(&format!("clockid: {}\n", libc::CLOCK_BOOTTIME))
                && rest(text).is_some_and(|rest| rest <= seconds && rest + 60 > seconds)
        };
        texts.filter(is_one).count()
    }

    #[tokio::test]
    async fn it_is_over_when_its_time_is_and_leaves_nothing_behind() {
        sleep(Duration::ZERO).await;
        sleep(Duration::from_millis(2)).await;
        let seconds = 12_345_678;
        {
            let sleeping = pin!(sleep(Duration::from_secs(seconds)));
            assert!(sleeping.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(count(seconds), 1);
        }
        assert_eq!(count(seconds), 0);
    }
}
