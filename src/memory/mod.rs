//! The embedded store: standings in this process, bounded in keys and in bytes.

mod block;
mod config;
mod decide;
mod entry_id;
mod index;
mod locked;
mod mode;
mod rank;
mod shard;
mod shards;
pub(super) mod size;
mod store;
mod usage;

pub use self::{config::MemoryConfig, store::MemoryStore};
