//! Limits that several regions share: guaranteed shares, and a pool on a home store.

mod checks;
mod failures;
mod leases;
#[cfg(feature = "redis")]
#[path = "../redis/proxy.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod proxy;
#[cfg(feature = "redis")]
mod real;
mod requests;
#[cfg(feature = "redis")]
#[path = "../redis/servers.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod union;
mod world;
