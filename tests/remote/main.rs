//! The stages between a limiter and a remote store: faults of the store, and attacks.

mod backlog;
mod blocks;
mod breaker;
mod clocks;
mod delayed;
mod deny_cache;
mod deny_cache_differential;
mod fallback;
#[cfg(feature = "redis-tls")]
mod faults;
mod in_flight;
mod instances;
mod jobs;
mod leases;
mod liveness;
mod permits;
#[cfg(feature = "redis-tls")]
mod recovery;
mod remote;
#[cfg(feature = "redis-tls")]
mod soak;
mod trials;
