//! Room for new keys in a full store.

use std::sync::{MutexGuard, TryLockError};

use super::{
    MemoryStore,
    entry_id::EntryId,
    shard::{Eviction, MemoryShard},
};
use crate::clock::Timestamp;

/// The number of other shards in which entries may be evicted.
const MAX_OTHER_SHARDS: usize = 7;

/// Keys that need room in a shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewKeys<'k> {
    /// The number of the shard.
    pub(super) shard: usize,
    /// The number of new keys in this shard.
    pub(super) count: usize,
    /// The number of new keys in other shards that have room but are not there yet.
    pub(super) elsewhere: usize,
    /// The entries that must stay.
    pub(super) keep: &'k [EntryId],
    pub(super) now: Timestamp,
}

impl MemoryStore {
    /// Makes room for new keys in `own`, their shard.
    ///
    /// First drops a few expired entries. If the store is still full, evicts entries until the new
    /// keys fit: expired ones, in this shard and in some others, and then live ones. If all of them
    /// have to stay or are in shards that are in use, the store holds more than its maximum until the
    /// next new key comes.
    #[cold]
    pub(super) fn make_room(&self, own: &mut MemoryShard, new: NewKeys<'_>) {
        own.sweep(new.start(), new.now, new.keep, &self.usage);
        if self.fits(own, &new) {
            return;
        }
        // Chance makes shards unequal: one below the mean takes a place from one that is larger, also
        // if that one is below the mean itself. So places move on beyond the nearest shards.
        let is_small = own.len() < self.usage.keys() / self.shards.len();
        let larger = own.len() + 1;
        let _fits = self.evict_own(own, &new, Eviction::Expired)
            || self.evict_others(own, &new, Eviction::Expired, 0)
            || is_small && self.evict_others(own, &new, Eviction::Any, larger)
            || self.evict_own(own, &new, Eviction::Any)
            || self.evict_others(own, &new, Eviction::Any, 0);
    }

    /// Evicts entries of the shard of the new keys until these fit. Returns whether they do.
    fn evict_own(&self, own: &mut MemoryShard, new: &NewKeys<'_>, eviction: Eviction) -> bool {
        while self.evict(own, new, eviction) {
            if self.fits(own, new) {
                return true;
            }
        }
        false
    }

    /// Evicts entries of other shards, each as long as it holds more than `len`, until the new keys
    /// fit. Returns whether they do.
    fn evict_others(
        &self,
        own: &MemoryShard,
        new: &NewKeys<'_>,
        eviction: Eviction,
        len: usize,
    ) -> bool {
        for step in 1..=MAX_OTHER_SHARDS {
            let Some(mut other) = self.try_lock(new.shard + step) else { continue };
            while other.len() > len && self.evict(&mut other, new, eviction) {
                if self.fits(own, new) {
                    return true;
                }
            }
        }
        false
    }

    fn evict(&self, shard: &mut MemoryShard, new: &NewKeys<'_>, eviction: Eviction) -> bool {
        shard.evict(eviction, new.start(), new.now, new.keep, &self.usage)
    }

    fn fits(&self, own: &MemoryShard, new: &NewKeys<'_>) -> bool {
        own.fits(new.count, &self.usage, new.elsewhere)
    }

    /// Locks another shard, unless it is in use: waiting for it while another shard is locked could
    /// deadlock.
    fn try_lock(&self, number: usize) -> Option<MutexGuard<'_, MemoryShard>> {
        match self.shards[number & (self.shards.len() - 1)].0.try_lock() {
            Ok(shard) => Some(shard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl NewKeys<'_> {
    /// Returns where samples begin: at random, because ids are random numbers.
    fn start(&self) -> usize {
        self.keep.first().map_or(0, |id| (id.low >> 32) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        memory::{MemoryConfig, decide::Mode},
        policy::Policy,
    };

    /// Without the balance, shards keep the sizes at which the store became full.
    #[test]
    fn small_shards_take_places_of_larger_ones() {
        const KEYS: usize = 1_024;
        const PER_SHARD: usize = 16;
        for seed in 0..2 {
            let store = MemoryStore::new(MemoryConfig::default().max_keys(KEYS).hash_seed(seed));
            let lens = || store.shards.iter().map(|shard| shard.0.lock().expect("a lock").len());
            let policy = Policy::new("day", "100/day").expect("a name");
            for key in 0..12 * KEYS as u64 {
                if key == KEYS as u64 {
                    let smallest = lens().min();
                    assert!(smallest < Some(PER_SHARD * 5 / 8), "{smallest:?}: balanced by chance");
                }
                let _ = store.decide_one(
                    &policy.charge(key, 1),
                    Timestamp::from_micros(key),
                    Mode::Acquire,
                );
            }
            assert_eq!(lens().sum::<usize>(), KEYS);
            let smallest = lens().min();
            assert!(smallest >= Some(PER_SHARD * 3 / 4), "{smallest:?} keys in a shard");
        }
    }
}
