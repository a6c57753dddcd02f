//! The embedded store: standings in this process, bounded in keys and in bytes.

mod block;
mod config;
mod decide;
mod entry_id;
mod eviction;
mod index;
mod locked;
mod rank;
mod shard;
pub(super) mod size;
mod store;
mod usage;

pub use self::{config::MemoryConfig, store::MemoryStore};
