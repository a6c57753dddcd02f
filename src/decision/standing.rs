//! Where a key stands under one policy.

use std::time::Duration;

use crate::clock::Timestamp;

/// Where a key stands under one policy, at the time of the decision and after what it spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) next_after: u64,
    pub(crate) reset_after: u64,
    pub(crate) retry_after: Option<u64>,
}

impl Standing {
    /// The standing that a store of your own answers. What the parts mean is said at the methods of
    /// the same names.
    ///
    /// Waits are rounded up to whole microseconds, so that nobody who waits for so long is too
    /// early. None is longer than 2^53 - 1 of them, which are 285 years.
    #[must_use]
    pub fn new(
        limit: u64,
        remaining: u64,
        next_after: Duration,
        reset_after: Duration,
        retry_after: Option<Duration>,
    ) -> Self {
        Self {
            limit,
            remaining,
            next_after: micros_up(next_after),
            reset_after: micros_up(reset_after),
            retry_after: retry_after.map(micros_up),
        }
    }

    /// The standing of a key from which nothing is missing.
    #[inline]
    pub(crate) const fn full(limit: u64) -> Self {
        Self { limit, remaining: limit, next_after: 0, reset_after: 0, retry_after: None }
    }

    /// The most units that can ever remain: the limit, or the burst of a token bucket.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Units that can be spent at once.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Until [`remaining`](Self::remaining) next grows if nobody spends; zero when it is full.
    #[must_use]
    pub fn next_after(&self) -> Duration {
        Duration::from_micros(self.next_after)
    }

    /// Until everything has come back if nobody spends; zero when it has.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after)
    }

    /// The shortest wait after which this charge would be admitted if nobody else spends: waiting
    /// it succeeds, a microsecond less fails. `None` if the charge would pass now, or never.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_micros)
    }
}

fn micros_up(wait: Duration) -> u64 {
    let micros = u64::try_from(wait.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
    micros.min(Timestamp::MAX.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_and_end() {
        let nano = Duration::from_nanos(1);
        let micro = Duration::from_micros(1);
        let standing = Standing::new(10, 4, micro, micro + nano, Some(Duration::MAX));
        assert_eq!((standing.limit(), standing.remaining()), (10, 4));
        assert_eq!((standing.next_after(), standing.reset_after()), (micro, 2 * micro));
        assert_eq!(standing.retry_after(), Some(Duration::from_micros((1 << 53) - 1)));
        assert_eq!(Standing::new(3, 3, Duration::ZERO, Duration::ZERO, None), Standing::full(3));
    }
}
