//! The shared store. Redis keeps the standings and decides a check by one script in one round trip.

mod backend;
mod batch;
mod cluster;
mod config;
mod connection;
mod error;
mod multi_slot;
mod script;
mod server_error;
mod startup;
mod store;
mod wire;

pub use self::{config::RedisConfig, store::RedisStore};
