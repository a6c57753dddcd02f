//! The locked shards of a check of several charges.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::{
    MemoryStore,
    decide::{Mode, spends},
    entry_id::EntryId,
    eviction::NewKeys,
    shard::MemoryShard,
};
use crate::{clock::Timestamp, policy::Charge};

/// The place of the entry of one charge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Location {
    pub(super) id: EntryId,
    /// The index among the locked shards.
    shard: usize,
    /// `None` for a key without an entry: it has spent nothing before this check.
    pub(super) position: Option<usize>,
}

/// The shards of a check. They are locked in the order of their numbers, so that checks cannot
/// deadlock.
pub(super) struct LockedShards<'s> {
    store: &'s MemoryStore,
    shards: SmallVec<[(usize, MutexGuard<'s, MemoryShard>); 4]>,
}

pub(super) type Locations = SmallVec<[Location; 4]>;

impl Location {
    /// Returns the location of an entry in the only shard that is locked.
    #[inline]
    pub(super) fn in_shard(shard: &MemoryShard, id: EntryId) -> Self {
        Self { id, shard: 0, position: shard.position(id) }
    }
}

impl<'s> LockedShards<'s> {
    /// Locks the shards of all charges, and locates their entries.
    pub(super) fn lock(store: &'s MemoryStore, charges: &[Charge<'_>]) -> (Self, Locations) {
        let mut locations = Locations::with_capacity(charges.len());
        let mut numbers = SmallVec::<[usize; 4]>::new();
        let mut hashed = None;
        for charge in charges {
            // Several policies for one key are common: the key is hashed once.
            let hash = match hashed {
                Some((key, hash)) if key == charge.key() => hash,
                _ => store.secret.hash(charge.key()),
            };
            hashed = Some((charge.key(), hash));
            let id = hash.entry(charge);
            let number = store.shard_of(id);
            if numbers.last() != Some(&number) {
                numbers.push(number);
            }
            locations.push(Location { id, shard: 0, position: None });
        }
        numbers.sort_unstable();
        numbers.dedup();
        let mut shards = SmallVec::new();
        for number in numbers {
            shards.push((number, store.lock(number)));
        }
        let locked = Self { store, shards };
        locked.locate(&mut locations);
        (locked, locations)
    }

    /// Returns the [time](MemoryShard::time) at which a request judges these entries.
    pub(super) fn time(&self, locations: &[Location], now: Timestamp) -> Timestamp {
        locations.iter().fold(now, |now, location| {
            let shard = &self.shards[location.shard].1;
            shard.time(location.position, now, &*self.store.clock)
        })
    }

    pub(super) fn shard(&mut self, location: &Location) -> &mut MemoryShard {
        &mut self.shards[location.shard].1
    }

    /// Returns whether every charge that is not a shadow passes.
    pub(super) fn admit(
        &mut self,
        charges: &[Charge<'_>],
        locations: &[Location],
        now: Timestamp,
    ) -> bool {
        charges.iter().zip(locations).all(|(charge, location)| {
            let shard = &mut self.shards[location.shard].1;
            let free = match location.position {
                Some(position) => shard.entry(position).state.free(charge.quota(), now),
                None => charge.quota().capacity(),
            };
            charge.is_shadow() || charge.cost() <= free
        })
    }

    /// Makes room for the keys without an entry that will spend.
    pub(super) fn make_room(
        &mut self,
        charges: &[Charge<'_>],
        locations: &mut [Location],
        now: Timestamp,
        mode: Mode,
    ) {
        let is_new = |charge: &Charge<'_>, location: &Location| {
            location.position.is_none() && spends(charge, mode)
        };
        if !charges.iter().zip(&*locations).any(|(charge, location)| is_new(charge, location)) {
            return;
        }
        let ids: SmallVec<[EntryId; 4]> = locations.iter().map(|location| location.id).collect();
        let mut elsewhere = 0;
        for (index, (number, shard)) in self.shards.iter_mut().enumerate() {
            let charges = charges.iter().zip(&*locations);
            let count = charges
                .filter(|(charge, location)| location.shard == index && is_new(charge, location))
                .count();
            if count > 0 {
                let new = NewKeys { shard: *number, count, elsewhere, keep: &ids, now };
                self.store.make_room(shard, new);
                elsewhere += count;
            }
        }
        // Evictions have changed positions.
        self.locate(locations);
    }

    /// Looks up the shard and the position of each entry.
    fn locate(&self, locations: &mut [Location]) {
        for location in locations {
            if self.shards.len() > 1 {
                let number = self.store.shard_of(location.id);
                let found = self.shards.binary_search_by_key(&number, |(number, _)| *number);
                location.shard = found.unwrap_or_default();
            }
            location.position = self.shards[location.shard].1.position(location.id);
        }
    }
}
