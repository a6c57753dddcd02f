//! Durations as whole numbers.

use std::time::Duration;

/// Returns a duration in whole nanoseconds, at most [`u64::MAX`].
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a duration in whole microseconds, at most [`u64::MAX`].
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
