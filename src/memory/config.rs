//! The configuration of the embedded store.

use std::sync::Arc;

use crate::clock::{Clock, SystemClock};

/// The size of a [`MemoryStore`](super::MemoryStore), and the clock that it reads.
///
/// With the feature `serde`, a configuration is a map of its fields without the clock. A field that is
/// missing has its default.
///
/// ```
/// use plimsoll::{Limiter, ManualClock, memory::{MemoryConfig, MemoryStore}};
///
/// let clock = ManualClock::at(1_700_000_000_000_000);
/// let config = MemoryConfig::default().max_keys(50_000).max_bytes(16 << 20).clock(clock);
/// let limiter = Limiter::new(MemoryStore::new(config));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// The maximum number of keys. A key under two policies counts as two. The default is
    /// 1,000,000, for which an empty store allocates 4 MiB.
    ///
    /// A full store admits new keys and forgets others, by these
    /// [rules](super::MemoryStore#when-the-store-is-full).
    pub max_keys: usize,
    /// The approximate maximum number of bytes in tables and logs. The default is 256 MiB.
    pub max_bytes: usize,
    /// The clock. The default is [`SystemClock`].
    pub clock: Arc<dyn Clock>,
    /// The seed of the hash that distributes keys over the shards. The default is `None`: each store
    /// takes a random secret, so that clients cannot choose keys that collide.
    ///
    /// A seed makes a full store forget the same keys in each run. It is meant for tests.
    pub hash_seed: Option<u64>,
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
    /// Sets the maximum number of keys, at least 1.
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// Sets the approximate maximum number of bytes.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the seed of the hash that distributes keys over the shards, for tests that must do the
    /// same in each run.
    #[must_use]
    pub fn hash_seed(mut self, seed: u64) -> Self {
        self.hash_seed = Some(seed);
        self
    }
}

#[cfg(feature = "serde")]
crate::serialized::by_mirror!(MemoryConfig);

/// [`MemoryConfig`] as serialized data.
#[cfg(feature = "serde")]
mod mirror {
    use std::sync::Arc;

    use serde::{Deserialize, Serialize};

    use crate::{
        clock::Clock,
        serialized::{number, or_off},
    };

    #[derive(Serialize, Deserialize)]
    #[serde(
        remote = "super::MemoryConfig",
        default = "super::MemoryConfig::default",
        deny_unknown_fields
    )]
    pub(super) struct MemoryConfig {
        #[serde(deserialize_with = "number::<1, { u64::MAX }, _, _>")]
        max_keys: usize,
        max_bytes: usize,
        #[serde(with = "or_off")]
        hash_seed: Option<u64>,
        #[serde(skip)]
        clock: Arc<dyn Clock>,
    }
}
