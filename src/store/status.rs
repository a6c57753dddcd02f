//! The condition of a store, for health pages and metrics.

use std::time::Duration;

use super::MemoryStats;

/// The condition of a limiter's store: [`Limiter::status`](crate::Limiter::status) returns it, and
/// a [`Store`](super::Store) reports it.
///
/// A part is `None` if the store does not have it: an embedded store has no breaker and no latency,
/// and a remote store without a fallback holds nothing in this process.
///
/// ```
/// use tollgate::{Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::in_memory();
/// let search = Policy::new("search", Quota::per_minute(100))?;
/// assert!(limiter.check(search.charge("alice", 1)).await?.is_allowed());
///
/// let status = limiter.status();
/// assert_eq!(status.memory.expect("an embedded store").keys, 1);
/// assert_eq!(status.breaker, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Status {
    /// The state of the circuit breaker around the store.
    pub breaker: Option<BreakerStatus>,
    /// The moving average of the store's response time.
    pub latency: Option<Duration>,
    /// The contents of the memory store: the embedded store, or the one that decides while the
    /// shared store cannot answer.
    pub memory: Option<MemoryStats>,
}

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerStatus {
    /// Every request is sent to the store.
    Closed,
    /// No request is sent to the store.
    Open {
        /// The time since the breaker opened.
        elapsed: Duration,
        /// The time until the breaker next probes the store.
        probe_after: Duration,
    },
    /// A probe is on its way to the store, and no other request is sent.
    HalfOpen,
    /// The store answers again. A growing number of requests is sent to it.
    Recovering,
}

impl Status {
    /// Creates the status of a store that reports nothing about itself.
    #[must_use]
    pub const fn new() -> Self {
        Self { breaker: None, latency: None, memory: None }
    }

    /// Returns the same status with the state of a breaker.
    #[must_use]
    pub const fn with_breaker(self, breaker: BreakerStatus) -> Self {
        Self { breaker: Some(breaker), ..self }
    }

    /// Returns the same status with a response time.
    #[must_use]
    pub const fn with_latency(self, latency: Duration) -> Self {
        Self { latency: Some(latency), ..self }
    }

    /// Returns the same status with the contents of a memory store.
    #[must_use]
    pub const fn with_memory(self, memory: MemoryStats) -> Self {
        Self { memory: Some(memory), ..self }
    }
}
