//! The embedded store: standings in this process, bounded in keys and in bytes.

mod config;
mod decide;
mod entry_id;
mod index;
mod locked;
mod shard;
mod shards;
mod store;
mod usage;

pub(crate) use self::usage::size_text;
pub use self::{config::MemoryConfig, store::MemoryStore};
