//! The status of a store, for health pages and metrics.

use std::time::Duration;

/// The status of a [`Store`](super::Store), as [`Store::status`](super::Store::status) and
/// [`Limiter::status`](crate::Limiter::status) return it.
///
/// A part that the store does not have is `None`. A [`MemoryStore`](crate::MemoryStore) has no
/// breaker and no latency. A [`RedisStore`](crate::RedisStore) without a
/// [fallback](crate::Resilience::fallback) has no memory.
///
/// # Examples
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Status {
    /// The state of the circuit breaker around the store; see
    /// [`BreakerConfig`](crate::resilience::BreakerConfig). Each node of a cluster has a breaker, and this is
    /// the worst of their states.
    pub breaker: Option<BreakerStatus>,
    /// The number of breakers that are open: of a store over one server 0 or 1, of a
    /// cluster the number of nodes that do not decide their keys.
    pub open_breakers: usize,
    /// The moving average of the store's response time, without requests that were refused or not sent.
    pub latency: Option<Duration>,
    /// The moving average of the scheduling delay: the time by which the timers of calls are late. It is
    /// measured while calls wait for the store for 10 ms or longer.
    pub scheduling_delay: Option<Duration>,
    /// The contents of the memory store: of an embedded [`MemoryStore`](crate::MemoryStore), or of
    /// the [fallback](crate::Resilience::fallback) of a remote store.
    pub memory: Option<MemoryStats>,
    /// The reason why a [lazy](crate::redis::RedisConfig::lazy) store is not ready: the text of the error of
    /// its last attempt to start, which names host and port, or that the first attempt has not ended. `None` once the store has
    /// started, and for all other stores.
    pub not_ready: Option<String>,
    /// The number of instances that share the store. An instance is a limiter over the store, and a process usually has
    /// one. `None` until the store has counted, or if it [does not count](super::Traits::counts_instances). For an
    /// embedded store, the number is 1.
    pub instances: Option<u32>,
    /// The drift of the store's clock in parts per million, as far as it is certain: microseconds that it gains in a second
    /// of the clock of this process, or loses if the drift is negative. Above 500 or below -500, this process does not
    /// [lease](crate::Quota::leased). Of several nodes, the drift is the largest.
    pub clock_drift_ppm: i64,
    /// The number of keys of which this process holds [leased](crate::Quota::leased) units. The limiter
    /// counts them, so a store has no setter for them.
    pub leased_keys: usize,
    /// The number of leased units that this process holds.
    pub leased_units: u64,
    /// The status of the home store of [regions](https://docs.rs/plimsoll-regions), and of the stages around it. The
    /// other fields are about the store of the region.
    pub home: Option<Box<Status>>,
}

/// The state of the circuit breaker that a [`BreakerConfig`](crate::resilience::BreakerConfig) configures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerStatus {
    /// Every request is sent to the store.
    Closed,
    /// No request is sent to the store. It is probed every
    /// [`BreakerConfig::open`](crate::resilience::BreakerConfig::open).
    Open {
        /// The time since the breaker opened.
        elapsed: Duration,
        /// The time until the breaker next probes the store.
        probe_after: Duration,
    },
}

/// The contents of a [`MemoryStore`](crate::MemoryStore), and what it had to forget for want of
/// room. [`Limiter::status`](crate::Limiter::status) returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The number of keys. Expired keys count until they are reclaimed.
    pub keys: usize,
    /// The number of bytes in tables and logs.
    pub bytes: usize,
    /// The number of keys that were evicted before they expired.
    pub evicted: u64,
    /// The number of units that evicted keys had spent and not got back yet.
    pub forgiven: u64,
}
