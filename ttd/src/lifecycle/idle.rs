//! Leaving when there is nothing left to do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Counts what keeps the daemon from leaving, and remembers when the last of it ended.
#[derive(Debug, Clone)]
pub struct Activity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    busy: AtomicUsize,
    rested: Mutex<Instant>,
}

/// Something under way. The daemon stays for as long as one of these lives.
#[derive(Debug)]
pub struct Busy(Activity);

impl Activity {
    pub fn new() -> Self {
        Self(Arc::new(Inner { busy: AtomicUsize::new(0), rested: Mutex::new(Instant::now()) }))
    }

    pub fn begin(&self) -> Busy {
        self.0.busy.fetch_add(1, Ordering::AcqRel);
        Busy(self.clone())
    }

    pub fn count(&self) -> usize {
        self.0.busy.load(Ordering::Acquire)
    }

    /// Resolves once nothing has been under way for `rest`. It sleeps until the earliest moment that can be and looks
    /// again, so that a busy daemon pays nothing for it.
    pub async fn rested(&self, rest: Duration) {
        loop {
            let since = *self.0.rested.lock().unwrap_or_else(PoisonError::into_inner);
            let due = if self.count() > 0 { Instant::now() + rest } else { since + rest };
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }
}

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let inner = &self.0.0;
        // The time first: a reader that sees the count at zero must see since when.
        *inner.rested.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        inner.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rest_is_counted_from_the_end_of_the_last_activity() {
        let activity = Activity::new();
        let start = Instant::now();
        let busy = activity.begin();
        let waiting = tokio::spawn({
            let activity = activity.clone();
            async move { activity.rested(Duration::from_secs(60)).await }
        });
        tokio::time::sleep(Duration::from_secs(500)).await;
        assert!(!waiting.is_finished(), "something was under way");
        drop(busy);
        waiting.await.unwrap();
        assert!(start.elapsed() >= Duration::from_secs(560), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_call_starts_the_rest_anew() {
        let activity = Activity::new();
        let start = Instant::now();
        let waiting = tokio::spawn({
            let activity = activity.clone();
            async move { activity.rested(Duration::from_secs(60)).await }
        });
        tokio::time::sleep(Duration::from_secs(59)).await;
        drop(activity.begin());
        waiting.await.unwrap();
        assert!(start.elapsed() >= Duration::from_secs(119), "{:?}", start.elapsed());
    }
}
