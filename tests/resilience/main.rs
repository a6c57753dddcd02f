//! What a store that is slow, gone or wrong does to those who ask, and what attackers cost it.

mod adrift;
mod breaker;
mod deny_cache;
mod deny_cache_differential;
mod fallback;
#[cfg(feature = "redis-tls")]
mod faults;
mod owed;
#[cfg(feature = "redis-tls")]
mod proxy;
#[cfg(feature = "redis-tls")]
mod recovery;
mod remote;
#[cfg(feature = "redis-tls")]
#[path = "../redis/servers.rs"]
mod servers;
#[cfg(feature = "redis-tls")]
mod soak;
#[path = "../support/mod.rs"]
mod support;
