//! An axum server in a process of its own, under steady load from another, while its Redis goes
//! through real faults; and attackers.

mod attackers;
mod clusters;
mod distance;
mod figures;
mod load;
mod loss;
mod names;
mod outages;
mod pacing;
mod saturated;
mod sentinels;
mod server;
mod stage;
mod transport;
mod transports;

/// Tests that measure times take this lock, so that they do not disturb each other.
pub(crate) static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
