//! The locked shards of a check of several charges.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::{
    entry_id::EntryId,
    shard::{MemoryShard, Rank},
    shards::{NewKeys, Shards},
};
use crate::{
    algorithm::KeyState,
    clock::Timestamp,
    decision::ChargeReply,
    policy::Charge,
    store::{Request, decide::States},
};

/// The place of the entry of one charge.
#[derive(Debug, Clone, Copy)]
struct Location {
    id: EntryId,
    /// The index among the locked shards.
    shard: usize,
    /// `None` for a key without an entry: it has spent nothing before this check.
    position: Option<usize>,
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
struct LockedShard<'s> {
    number: usize,
    guard: MutexGuard<'s, MemoryShard>,
}

impl<'s> LockedShards<'s> {
    /// Locks the shards of all charges, and locates their entries.
    pub(super) fn lock(store: &'s Shards, request: Request<'_>) -> Self {
        let mut numbers = SmallVec::<[usize; 4]>::new();
        let mut locations = SmallVec::new();
        let mut hashed = None;
        for charge in request.charges() {
            // Several policies for one key are common: the key is hashed once.
            let hash = match hashed {
                Some((key, hash)) if key == charge.key() => hash,
                _ => store.secret.hash(charge.key()),
            };
            hashed = Some((charge.key(), hash));
            let id = EntryId::new(hash, charge);
            let number = store.shard_of(id);
            if numbers.last() != Some(&number) {
                numbers.push(number);
            }
            locations.push(Location { id, shard: 0, position: None });
        }
        numbers.sort_unstable();
        numbers.dedup();
        let shards = numbers.into_iter();
        let shards = shards.map(|number| LockedShard { number, guard: store.lock(number) });
        let mut locked = Self { store, shards: shards.collect(), locations };
        locked.locate();
        locked
    }

    /// Returns the [time](MemoryShard::time) at which a request judges these entries.
    pub(super) fn time(&self, now: Timestamp) -> Timestamp {
        self.locations.iter().fold(now, |now, location| {
            let shard = &self.shards[location.shard].guard;
            shard.time(location.position, now, &*self.store.clock)
        })
    }

    /// Notes the standings of the keys after a decision at `now`.
    pub(super) fn rank(&mut self, replies: &[ChargeReply], now: Timestamp) {
        for (location, reply) in self.locations.iter().zip(replies) {
            if let Some(position) = location.position {
                let shard = &mut self.shards[location.shard].guard;
                shard.entry(position).rank = Rank::new(&reply.standing, now);
            }
        }
    }

    /// Looks up the shard and the position of each entry.
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

impl States for LockedShards<'_> {
    fn get(&mut self, index: usize) -> Option<&mut KeyState> {
        let Location { id, shard, position } = self.locations[index];
        let shard = &mut self.shards[shard].guard;
        // An earlier charge of this check may have created the entry.
        let position = position.or_else(|| shard.position(id))?;
        Some(&mut shard.entry(position).state)
    }

    fn get_or_insert(&mut self, index: usize, charge: &Charge<'_>) -> &mut KeyState {
        let location = &mut self.locations[index];
        let shard = &mut self.shards[location.shard].guard;
        let position = location.position.or_else(|| shard.position(location.id));
        let position = position.unwrap_or_else(|| {
            let state = KeyState::new(charge.quota().algorithm());
            shard.insert(location.id, state, &self.store.usage)
        });
        location.position = Some(position);
        &mut shard.entry(position).state
    }

    fn remove(&mut self, index: usize) {
        let Location { id, shard, .. } = self.locations[index];
        let shard = &mut self.shards[shard].guard;
        if let Some(position) = shard.position(id) {
            shard.remove(position, &self.store.usage);
        }
        // The last entry of the shard has moved to the position.
        self.locate();
    }

    fn make_room(
        &mut self,
        charges: &[Charge<'_>],
        now: Timestamp,
        spends: &dyn Fn(&Charge<'_>) -> bool,
    ) {
        let lines = charges.iter().zip(&self.locations);
        let new = lines.filter(|(charge, at)| at.position.is_none() && spends(charge));
        let new: SmallVec<[usize; 4]> = new.map(|(_, location)| location.shard).collect();
        if new.is_empty() {
            return;
        }
        let keep: SmallVec<[EntryId; 4]> = self.locations.iter().map(|at| at.id).collect();
        let mut elsewhere = 0;
        for (index, LockedShard { number, guard }) in self.shards.iter_mut().enumerate() {
            let count = new.iter().filter(|shard| **shard == index).count();
            if count > 0 {
                let new = NewKeys { shard: *number, count, elsewhere, keep: &keep, now };
                self.store.make_room(guard, new);
                elsewhere += count;
            }
        }
        // Evictions have changed positions.
        self.locate();
    }
}
