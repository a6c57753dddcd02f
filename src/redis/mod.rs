//! The shared store. Redis keeps the standings and decides a check by one script in one round trip.

mod backend;
mod batch;
mod batch_call;
mod cluster;
mod config;
mod connect;
mod connection;
mod error;
mod key_name;
mod multi_slot;
mod reply;
mod script;
mod sent_flag;
mod server_error;
#[cfg(feature = "serde")]
mod settings;
mod slot_queue;
mod spare_command;
mod startup;
mod store;
mod test_time;
mod trial;
mod wire;

pub use self::{config::RedisConfig, store::RedisStore};
