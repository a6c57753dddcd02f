//! The configuration of the embedded store.

use std::sync::Arc;

use crate::clock::{Clock, SystemClock};

/// The size of a [`MemoryStore`](super::MemoryStore), and the clock that it reads.
///
/// ```
/// use plimsoll::{Limiter, MemoryStore, clock::ManualClock, memory::MemoryConfig};
///
/// let clock = ManualClock::at(1_700_000_000_000_000);
/// let config = MemoryConfig::default().max_keys(50_000).max_bytes(16 << 20).clock(clock);
/// let limiter = Limiter::new(MemoryStore::new(config));
/// ```
#[derive(Debug, Clone)]
pub struct MemoryConfig {
    pub(crate) max_keys: usize,
    pub(crate) max_bytes: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(super) hash_seed: Option<u64>,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            max_keys: 1_000_000,
            max_bytes: 256 << 20,
            clock: Arc::new(SystemClock::new()),
            hash_seed: None,
        }
    }
}

impl MemoryConfig {
    /// Sets the maximum number of keys, at least 1. A key under two policies counts as two. The default
    /// is 1,000,000, for which an empty store allocates 4 MiB.
    ///
    /// A full store admits new keys and forgets others, by these
    /// [rules](super::MemoryStore#when-the-store-is-full).
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// Sets the approximate maximum number of bytes in tables and logs. The default is 256 MiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets the clock. The default is [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the seed of the hash that distributes keys over the shards, for tests: a full store then
    /// forgets the same keys in each run.
    ///
    /// The default is a random secret for each store, so that clients cannot choose keys that collide.
    #[must_use]
    pub fn hash_seed(mut self, seed: u64) -> Self {
        self.hash_seed = Some(seed);
        self
    }
}
