//! A moving average of durations.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// An exponential moving average. If two threads record at the same time, one sample may be lost.
#[derive(Debug, Default)]
pub(crate) struct MovingAverage {
    /// In nanoseconds; 0 if nothing has been recorded.
    average: AtomicU64,
}

/// The reciprocal of the weight of a new sample: it counts for one eighth.
const SMOOTHING: u64 = 8;

impl MovingAverage {
    /// Adds a sample to the average.
    pub(crate) fn record(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX).max(1);
        let average = match self.average.load(Ordering::Relaxed) {
            0 => sample,
            before => before - before / SMOOTHING + sample / SMOOTHING,
        };
        self.average.store(average.max(1), Ordering::Relaxed);
    }

    /// Returns the average, if anything has been recorded.
    pub(crate) fn get(&self) -> Option<Duration> {
        self.nanos().map(Duration::from_nanos)
    }

    /// Returns the average in microseconds, rounded down, if anything has been recorded.
    #[inline]
    pub(crate) fn micros(&self) -> Option<u64> {
        self.nanos().map(|nanos| nanos / 1000)
    }

    #[inline]
    fn nanos(&self) -> Option<u64> {
        Some(self.average.load(Ordering::Relaxed)).filter(|nanos| *nanos > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_samples() {
        let average = MovingAverage::default();
        assert_eq!(average.get(), None);
        average.record(Duration::from_millis(8));
        assert_eq!(average.get(), Some(Duration::from_millis(8)));
        average.record(Duration::from_millis(16));
        assert_eq!(average.get(), Some(Duration::from_millis(9)));
        (0..100).for_each(|_| average.record(Duration::from_millis(2)));
        let average = average.get().expect("recorded");
        assert!(
            average.abs_diff(Duration::from_millis(2)) < Duration::from_micros(1),
            "{average:?}"
        );
    }
}
