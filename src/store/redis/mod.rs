//! The shared store: standings in Redis, decided there by one script in one round trip.

mod backend;
mod batch;
mod cluster;
mod config;
mod connection;
mod error;
mod key_name;
mod multi_slot;
mod script;
mod store;
mod test_time;
mod wire;

pub use self::{config::RedisConfig, store::RedisStore};
