//! The locked shards of a check of several charges.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::{
    entry_id::EntryId,
    shard::MemoryShard,
    shards::{NewKeys, Shards},
};
use crate::{clock::Timestamp, policy::Charge};

/// The place of the entry of one charge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Location {
    pub(super) id: EntryId,
    /// The index among the locked shards.
    pub(super) shard: usize,
    /// `None` for a key without an entry: it has spent nothing before this check.
    pub(super) position: Option<usize>,
}

/// The shards of a check, and the places of its entries. The shards are locked in the order of their
/// numbers, so that checks cannot deadlock.
pub(super) struct LockedShards<'s> {
    store: &'s Shards,
    shards: SmallVec<[LockedShard<'s>; 4]>,
    /// Has an element for each charge.
    locations: SmallVec<[Location; 4]>,
}

/// A locked shard, and its number.
pub(super) struct LockedShard<'s> {
    number: usize,
    pub(super) guard: MutexGuard<'s, MemoryShard>,
}

impl Location {
    /// Returns the location of an entry in the only shard that is locked.
    #[inline]
    pub(super) fn in_shard(shard: &MemoryShard, id: EntryId) -> Self {
        Self { id, shard: 0, position: shard.position(id) }
    }
}

impl<'s> LockedShards<'s> {
    /// Creates a value without shards. [`lock`](Self::lock) fills it in place, because moving it would
    /// cost as much as finding an entry.
    #[inline]
    pub(super) fn new(store: &'s Shards) -> Self {
        Self { store, shards: SmallVec::new(), locations: SmallVec::new() }
    }

    /// Locks the shards of all charges, and locates their entries.
    #[inline]
    pub(super) fn lock(&mut self, charges: &[Charge<'_>]) {
        let mut numbers = SmallVec::<[usize; 4]>::new();
        let mut hashed = None;
        let store = self.store;
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
            self.locations.push(Location { id, shard: 0, position: None });
        }
        numbers.sort_unstable();
        numbers.dedup();
        for &number in &numbers {
            self.shards.push(LockedShard { number, guard: store.lock(number) });
        }
        self.locate();
    }

    /// Returns the [time](MemoryShard::time) at which a request judges these entries.
    #[inline]
    pub(super) fn time(&self, now: Timestamp) -> Timestamp {
        self.locations.iter().fold(now, |now, location| {
            let shard = &self.shards[location.shard].guard;
            shard.time(location.position, now, &*self.store.clock)
        })
    }

    /// Returns the locked shards, and the location of the entry of each charge.
    #[inline]
    pub(super) fn entries(&mut self) -> (&mut [LockedShard<'s>], &[Location]) {
        (&mut self.shards, &self.locations)
    }

    /// Returns whether every live charge passes.
    #[inline]
    pub(super) fn all_pass(&mut self, charges: &[Charge<'_>], now: Timestamp) -> bool {
        let (shards, locations) = self.entries();
        let mut live = charges.iter().zip(locations).filter(|(charge, _)| charge.is_live());
        live.all(|(charge, location)| match location.position {
            Some(position) => {
                let state = &mut shards[location.shard].guard.entry(position).state;
                state.affords(charge.quota(), now, charge.cost())
            }
            None => charge.cost() <= charge.quota().capacity(),
        })
    }

    /// Makes room for the keys without an entry whose charges will spend.
    #[inline]
    pub(super) fn make_room(
        &mut self,
        charges: &[Charge<'_>],
        now: Timestamp,
        spends: &dyn Fn(&Charge<'_>) -> bool,
    ) {
        let mut lines = charges.iter().zip(&self.locations);
        if lines.any(|(charge, location)| is_new(charge, location, spends)) {
            self.make_room_for_some(charges, now, spends);
        }
    }

    #[inline(never)]
    fn make_room_for_some(
        &mut self,
        charges: &[Charge<'_>],
        now: Timestamp,
        spends: &dyn Fn(&Charge<'_>) -> bool,
    ) {
        let ids: SmallVec<[EntryId; 4]> = self.locations.iter().map(|at| at.id).collect();
        let mut elsewhere = 0;
        for (index, LockedShard { number, guard }) in self.shards.iter_mut().enumerate() {
            let lines = charges.iter().zip(&self.locations);
            let count = lines
                .filter(|(charge, location)| {
                    location.shard == index && is_new(charge, location, spends)
                })
                .count();
            if count > 0 {
                let new = NewKeys { shard: *number, count, elsewhere, keep: &ids, now };
                self.store.make_room(guard, new);
                elsewhere += count;
            }
        }
        // Evictions have changed positions.
        self.locate();
    }

    /// Looks up the shard and the position of each entry.
    #[inline]
    fn locate(&mut self) {
        let shards = &*self.shards;
        for location in &mut self.locations {
            if shards.len() > 1 {
                let number = self.store.shard_of(location.id);
                let found = shards.binary_search_by_key(&number, |shard| shard.number);
                location.shard = found.unwrap_or_default();
            }
            location.position = shards[location.shard].guard.position(location.id);
        }
    }
}

/// Returns whether the charge needs an entry that is not there yet.
#[inline]
fn is_new(charge: &Charge<'_>, location: &Location, spends: &dyn Fn(&Charge<'_>) -> bool) -> bool {
    location.position.is_none() && spends(charge)
}
