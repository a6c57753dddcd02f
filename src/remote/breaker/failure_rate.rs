//! The share of failed calls in a sliding window.

use std::time::Duration;

use super::BreakerConfig;

/// The number of parts that the window consists of. It slides by one part at a time.
const SLICES: u32 = 10;

/// The numbers of calls and failures in each slice of the window.
#[derive(Debug, Clone, Default)]
pub(super) struct FailureRate([Slice; SLICES as usize]);

/// The calls that ended in one slice of the window.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    number: u64,
    calls: u32,
    failures: u32,
}

impl FailureRate {
    /// Counts a call that ended at `now`.
    pub(super) fn count(&mut self, config: &BreakerConfig, now: Duration, failed: bool) {
        let number = slice_number(config, now);
        let slice = &mut self.0[(number % u64::from(SLICES)) as usize];
        if slice.number != number {
            *slice = Slice { number, ..Slice::default() };
        }
        slice.calls = slice.calls.saturating_add(1);
        slice.failures = slice.failures.saturating_add(u32::from(failed));
    }

    /// Returns whether at least [`min_calls`](BreakerConfig::min_calls) calls ended within the
    /// window and at least [`failures_percent`](BreakerConfig::failures_percent) of them failed.
    pub(super) fn is_exceeded(&self, config: &BreakerConfig, now: Duration) -> bool {
        let newest = slice_number(config, now);
        let recent = self.0.iter().filter(|slice| slice.number + u64::from(SLICES) > newest);
        let (calls, failures) = recent.fold((0_u64, 0_u64), |(calls, failures), slice| {
            (calls + u64::from(slice.calls), failures + u64::from(slice.failures))
        });
        calls >= u64::from(config.min_calls)
            && failures * 100 >= calls * u64::from(config.failures_percent)
    }
}

fn slice_number(config: &BreakerConfig, now: Duration) -> u64 {
    let length = (config.window / SLICES).as_nanos().max(1);
    (now.as_nanos() / length) as u64
}
