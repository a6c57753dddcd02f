//! Random numbers that need not be secret.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// Returns a random number. Each new `RandomState` hashes to other numbers.
pub(crate) fn number() -> u64 {
    RandomState::new().hash_one(())
}

/// Returns a random number up to `max`.
pub(crate) fn up_to(max: u64) -> u64 {
    match max {
        0 => 0,
        u64::MAX => number(),
        max => number() % (max + 1),
    }
}

/// Returns a random time up to `duration`, in whole microseconds. As jitter, it keeps the instances of
/// a service, or its clients, from acting all at once.
pub(crate) fn part_of(duration: Duration) -> Duration {
    Duration::from_micros(up_to(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
}

/// Returns a random time from half of `duration` to all of it, for repeated attempts of all instances of
/// a service.
#[cfg(feature = "redis")]
pub(crate) fn half_or_more(duration: Duration) -> Duration {
    duration / 2 + part_of(duration / 2)
}
