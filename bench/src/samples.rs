//! Samples of one figure, and what is read off them.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of the clock that all processes of the machine share.
pub(crate) fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |t| u64::try_from(t.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0))
}

/// Times in microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Adds the time between two readings of [`now`].
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        self.0.push(to.saturating_sub(from) as f64 / 1000.0);
    }

    pub(crate) fn extend(&mut self, other: Samples) {
        self.0.extend(other.0);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest sample that `share` of all do not exceed.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let index = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(index.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn p50(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.quantile(0.99)
    }

    pub(crate) fn max(&self) -> f64 {
        self.quantile(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_that_were_taken() {
        let mut samples = Samples::default();
        (1..=100).rev().for_each(|n| samples.add(0, n * 1000));
        assert_eq!((samples.p50(), samples.p99(), samples.max()), (50.0, 99.0, 100.0));
        let mut one = Samples::default();
        one.add(0, 7000);
        assert_eq!((one.p50(), one.p99(), one.max()), (7.0, 7.0, 7.0));
    }
}
