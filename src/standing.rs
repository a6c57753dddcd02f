//! Where a key stands under one policy.

use std::time::Duration;

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
