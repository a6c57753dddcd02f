//! Room for new keys in a full store.

use std::sync::{MutexGuard, TryLockError};

use super::{
    MemoryStore,
    entry_id::EntryId,
    shard::{Eviction, Shard},
};
use crate::clock::Timestamp;

/// The number of other shards in which a key is evicted when the own shard has none to evict.
const MAX_OTHER_SHARDS: usize = 15;

impl MemoryStore {
    /// Makes room for `new_keys` keys in this shard, in addition to the keys that are `expected` in
    /// other shards. Returns whether there is room.
    ///
    /// First drops a few expired entries. If the store is still full, evicts entries: expired ones,
    /// then the least spent of a sample. Entries that deny charges, and those in `keep`, stay.
    pub(super) fn make_room(
        &self,
        number: usize,
        shard: &mut Shard,
        (new_keys, expected): (usize, usize),
        now: Timestamp,
        keep: &[EntryId],
    ) -> bool {
        let usage = &self.usage;
        let fits = |shard: &Shard| shard.fits(new_keys, usage, expected);
        // The sample begins at a random position, and ids are random numbers.
        let start = keep.first().map_or(0, |id| (id.low >> 32) as usize);
        shard.sweep(start, now, keep, usage);
        if fits(shard) {
            return true;
        }
        for eviction in [Eviction::Expired, Eviction::LeastSpent] {
            for step in 0..=MAX_OTHER_SHARDS {
                let evict = |shard: &mut Shard| shard.evict(eviction, start, now, keep, usage);
                let evicted = match step {
                    0 => evict(shard),
                    _ => self.try_lock(number + step).is_some_and(|mut other| evict(&mut other)),
                };
                if evicted && fits(shard) {
                    return true;
                }
            }
        }
        false
    }

    /// Locks another shard, unless it is in use: waiting for it while another shard is locked could
    /// deadlock.
    fn try_lock(&self, number: usize) -> Option<MutexGuard<'_, Shard>> {
        match self.shards[number & (self.shards.len() - 1)].0.try_lock() {
            Ok(shard) => Some(shard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
