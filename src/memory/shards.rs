//! The shards of the embedded store, and room for new keys in a full store.

use std::sync::{Arc, MutexGuard};

use super::{
    MemoryConfig,
    entry_id::{EntryId, HashSecret},
    shard::{Eviction, MemoryShard},
    usage::Usage,
};
use crate::{
    clock::{Clock, Timestamp},
    sync::Mutex,
};

/// The keys of a store, in shards that are locked one by one.
#[derive(Debug)]
pub(super) struct Shards {
    shards: Box<[AlignedShard]>,
    pub(super) usage: Usage,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) secret: HashSecret,
}

/// A shard with its lock, in a cache line of its own, so that threads which use different shards do
/// not contend for a line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct AlignedShard(Mutex<MemoryShard>);

const _: () = assert!(size_of::<AlignedShard>() == 64);

/// The maximum number of keys in a shard of a full store with less than [`MAX_SHARDS`] shards. The
/// minimum is half of it. It is small, so that two threads rarely use the same shard
/// (`benches/scaling.rs`), and growing a table is quick. It is large enough for an eviction to compare
/// the classes.
const KEYS_PER_SHARD: usize = 16;

/// The maximum number of shards: 4 MiB of them. More shards cost more bytes a key than they save in
/// contention (`benches/memory.rs`).
const MAX_SHARDS: usize = 65_536;

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

impl Shards {
    /// Creates empty shards.
    pub(super) fn new(config: MemoryConfig) -> Self {
        let MemoryConfig { max_keys, max_bytes, clock, hash_seed } = config;
        let shards = (max_keys / KEYS_PER_SHARD).next_power_of_two().min(MAX_SHARDS);
        Self {
            shards: (0..shards).map(|_| AlignedShard::default()).collect(),
            usage: Usage::new(max_keys, max_bytes),
            clock,
            secret: HashSecret::new(hash_seed),
        }
    }

    /// Returns the size of the shards in bytes, without their entries.
    pub(super) fn bytes(&self) -> usize {
        size_of_val::<[AlignedShard]>(&self.shards)
    }

    pub(super) fn shard_of(&self, id: EntryId) -> usize {
        id.high as usize & (self.shards.len() - 1)
    }

    /// Locks a shard. A panic under the lock leaves no incomplete change behind, so a poisoned lock
    /// is used like any other.
    pub(super) fn lock(&self, number: usize) -> MutexGuard<'_, MemoryShard> {
        self.shards[number].0.lock()
    }

    /// Makes room for new keys in `own`, their shard.
    ///
    /// First drops a few expired entries. If the store is still full, evicts entries until the new
    /// keys fit: expired ones, in this shard and in some others, and then live ones. If all of them
    /// have to stay or are in shards that are in use, the store holds more than its maximum until the
    /// next new key comes.
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
        self.shards[number & (self.shards.len() - 1)].0.try_lock()
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
        memory::decide::{Replies, execute},
        policy::Policy,
        store::Request,
    };

    /// Without the balance, shards keep the sizes at which the store became full.
    #[test]
    fn small_shards_take_places_of_larger_ones() {
        const KEYS: usize = 1_024;
        const PER_SHARD: usize = 16;
        for seed in 0..2 {
            let shards = Shards::new(MemoryConfig::default().max_keys(KEYS).hash_seed(seed));
            let lens = || shards.shards.iter().map(|shard| shard.0.lock().len());
            let policy = Policy::new("day", "100/day").expect("a name");
            for key in 0..12 * KEYS as u64 {
                if key == KEYS as u64 {
                    let smallest = lens().min();
                    assert!(smallest < Some(PER_SHARD * 5 / 8), "{smallest:?}: balanced by chance");
                }
                let charges = [policy.charge(key, 1)];
                let request = Request::Acquire(&charges);
                let mut replies = Replies::new();
                execute(&shards, request, Timestamp::from_micros(key), &mut replies);
            }
            assert_eq!(lens().sum::<usize>(), KEYS);
            let smallest = lens().min();
            assert!(smallest >= Some(PER_SHARD * 3 / 4), "{smallest:?} keys in a shard");
        }
    }
}
