//! An axum server in a process of its own, under steady load from another, while its Redis goes
//! through real faults; and attackers.

mod attackers;
mod clusters;
#[path = "../common_http/mod.rs"]
#[allow(dead_code, reason = "HTTP/1.1 is enough here")]
mod common_http;
mod distance;
mod figures;
mod load;
mod loss;
mod names;
mod outages;
mod pacing;
mod processes;
#[path = "../resilience/proxy.rs"]
mod proxy;
mod saturated;
mod sentinels;
mod server;
#[path = "../redis/servers.rs"]
mod servers;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod transport;
mod transports;

/// Tests that measure times take this lock, so that they do not disturb each other.
pub(crate) static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
