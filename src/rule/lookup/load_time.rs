//! The measured time of a load.

use std::time::Duration;

/// The share of a new time in the averages.
const WEIGHT: u32 = 16;

/// The moving averages of the times of loads and of their deviation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoadTime {
    /// The mean and the mean deviation. `None` before the first load.
    measured: Option<(Duration, Duration)>,
}

impl LoadTime {
    pub(super) fn record(&mut self, time: Duration) {
        let average = |old: Duration, new: Duration| {
            old.saturating_mul(WEIGHT - 1).saturating_add(new) / WEIGHT
        };
        self.measured = Some(match self.measured {
            None => (time, Duration::ZERO),
            Some((mean, deviation)) => {
                (average(mean, time), average(deviation, mean.abs_diff(time)))
            }
        });
    }

    /// Returns the time in which most loads end: the mean and twice the deviation. One slow load raises
    /// it little.
    pub(super) fn expected(&self) -> Duration {
        let (mean, deviation) = self.measured.unwrap_or_default();
        mean.saturating_add(deviation.saturating_mul(2))
    }

    /// Returns the number of loads that can wait and still end within three quarters of `deadline`, if
    /// `at_once` loads run at once. The rest is for loads that take longer than others.
    pub(super) fn max_waiting(&self, deadline: Duration, at_once: usize) -> usize {
        let Some((mean, _)) = self.measured else { return usize::MAX };
        let wait = (deadline / 4 * 3).saturating_sub(self.expected());
        let rounds = wait.as_secs_f64() / mean.as_secs_f64().max(1e-9);
        // A conversion from a float saturates.
        (rounds * at_once as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn one_slow_load_raises_the_time_a_little() {
        let mut time = LoadTime::default();
        assert_eq!((time.expected(), time.max_waiting(200 * MS, 32)), (Duration::ZERO, usize::MAX));
        (0..40).for_each(|_| time.record(20 * MS));
        assert_eq!((time.expected(), time.max_waiting(200 * MS, 32)), (20 * MS, 208));
        time.record(200 * MS);
        assert!(time.expected() < 60 * MS, "{time:?}");
        assert!(time.max_waiting(200 * MS, 32) > 70, "{time:?}");
        (0..100).for_each(|_| time.record(20 * MS));
        assert!(time.max_waiting(200 * MS, 32) > 200, "{time:?}");
    }

    #[test]
    fn a_database_that_hangs_leaves_no_time_to_wait() {
        let mut time = LoadTime::default();
        (0..100).for_each(|_| time.record(200 * MS));
        assert_eq!(time.max_waiting(200 * MS, 32), 0);
        time.record(Duration::MAX);
        assert_eq!(time.max_waiting(200 * MS, 32), 0);
        let mut instant = LoadTime::default();
        instant.record(Duration::ZERO);
        assert!(instant.max_waiting(200 * MS, 1) > 1_000_000);
    }
}
