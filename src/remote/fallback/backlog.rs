//! The units that this process admitted without the store, and will charge to it later.

use std::sync::{
    MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use hashbrown::HashTable;

use crate::{algorithm::outstanding_of, clock::Timestamp, policy::Charge, sync::Mutex};

/// The maximum number of entries. Units beyond it are never charged to the store.
const MAX_ENTRIES: usize = 100_000;
/// The number of shards, each with its own lock. With 64, two threads rarely wait for the same one.
const SHARDS: usize = 64;
/// The least time between two searches of a full shard for entries that have expired, in
/// microseconds. So clients with ever new keys do not have the shard searched with each check.
const SWEEP_INTERVAL_MICROS: u64 = 1_000_000;

/// A table of units by policy and key.
#[derive(Debug)]
pub(in crate::remote) struct Backlog {
    shards: Box<[BacklogShard]>,
    len: AtomicUsize,
    max_len: usize,
    /// The number of instances that share each quota.
    instances: u32,
    /// The shard from which the next entry is taken.
    next_shard: AtomicUsize,
}

/// A part of the backlog. The alignment keeps two shards off the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct BacklogShard {
    entries: Mutex<HashTable<BacklogEntry>>,
    /// The entries that the replay has taken: the name, and the number of the call that took it. This
    /// lock is taken after that of the entries.
    taken: Mutex<HashTable<(u128, usize)>>,
    /// The time of the next search for entries that have expired, in microseconds. It is used under
    /// the lock of the entries.
    next_sweep: AtomicU64,
}

/// The units of one key under one policy.
#[derive(Debug)]
pub(super) struct BacklogEntry {
    name: u128,
    units: u64,
    /// The times at which the first and the last unit were admitted.
    first: Timestamp,
    last: Timestamp,
    /// The charge is boxed so that the fields that change with each admission lie close together.
    charge: Box<Charge<'static>>,
}

impl BacklogEntry {
    /// Returns a charge of all units of the entry.
    pub(super) fn charge(&self) -> Charge<'static> {
        Charge::clone(&self.charge).with_cost(self.units)
    }

    /// Returns the least and the greatest number of units that can still count at `now`: the number
    /// if all units had been admitted at the time of the first, and at the time of the last.
    pub(super) fn still_counts(&self, now: Timestamp, instances: u32) -> (u64, u64) {
        // The quota is read once: under two quotas the first number could exceed the second.
        let quota = self.charge.quota_in_force();
        let counts = |since| outstanding_of(&quota, instances, self.units, since, now);
        (counts(self.first), counts(self.last))
    }

    fn is_expired(&self, now: Timestamp, instances: u32) -> bool {
        self.still_counts(now, instances).1 == 0
    }
}

/// An entry that the replay has taken out of the backlog. It is no longer part of the backlog, unless
/// it is [added again](Self::add_again).
#[derive(Debug)]
pub(super) struct TakenEntry<'b> {
    backlog: &'b Backlog,
    /// The number of the call that took the entry.
    number: usize,
    entry: BacklogEntry,
}

impl TakenEntry<'_> {
    pub(super) fn entry(&self) -> &BacklogEntry {
        &self.entry
    }

    /// Adds an entry again that was not charged to the store, unless its key was reset meanwhile.
    pub(super) fn add_again(self) {
        let BacklogEntry { name, units, first, last, charge } = &self.entry;
        let mut shard = self.backlog.shard(*name);
        if self.backlog.taken(*name).find(hash(*name), |it| self.is(it)).is_some() {
            self.backlog.add_to(&mut shard, *name, charge, *units, (*first, *last));
        }
    }

    fn is(&self, taken: &(u128, usize)) -> bool {
        *taken == (self.entry.name, self.number)
    }
}

impl Drop for TakenEntry<'_> {
    fn drop(&mut self) {
        let name = self.entry.name;
        if let Ok(taken) = self.backlog.taken(name).find_entry(hash(name), |it| self.is(it)) {
            taken.remove();
        }
    }
}

impl Backlog {
    /// Creates an empty backlog.
    pub(super) fn new(instances: u32) -> Self {
        Self::with_max_len(MAX_ENTRIES, instances)
    }

    fn with_max_len(max_len: usize, instances: u32) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| BacklogShard::default()).collect(),
            len: AtomicUsize::new(0),
            max_len,
            instances,
            next_shard: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(in crate::remote) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Adds units that were admitted at `time`. `name` identifies the policy and the key; clients
    /// cannot choose it.
    #[inline]
    pub(super) fn add(&self, name: u128, charge: &Charge<'_>, units: u64, time: Timestamp) {
        self.add_to(&mut self.shard(name), name, charge, units, (time, time));
    }

    #[inline]
    fn add_to(
        &self,
        shard: &mut HashTable<BacklogEntry>,
        name: u128,
        charge: &Charge<'_>,
        units: u64,
        (first, last): (Timestamp, Timestamp),
    ) {
        match shard.find_mut(hash(name), |entry| entry.name == name) {
            Some(entry) => {
                entry.units = entry.units.saturating_add(units);
                entry.first = entry.first.min(first);
                entry.last = entry.last.max(last);
            }
            None => self.insert(shard, name, charge, units, (first, last)),
        }
    }

    #[inline(never)]
    fn insert(
        &self,
        shard: &mut HashTable<BacklogEntry>,
        name: u128,
        charge: &Charge<'_>,
        units: u64,
        (first, last): (Timestamp, Timestamp),
    ) {
        if self.len.load(Ordering::Relaxed) >= self.max_len {
            let now = last.as_micros();
            let next_sweep = &self.shards[shard_of(name)].next_sweep;
            if now < next_sweep.load(Ordering::Relaxed) {
                return;
            }
            next_sweep.store(now.saturating_add(SWEEP_INTERVAL_MICROS), Ordering::Relaxed);
            let before = shard.len();
            shard.retain(|entry| !entry.is_expired(last, self.instances));
            self.len.fetch_sub(before - shard.len(), Ordering::Relaxed);
            if before == shard.len() {
                return;
            }
        }
        let charge = Box::new(charge.clone().into_owned());
        let entry = BacklogEntry { name, units, first, last, charge };
        shard.insert_unique(hash(name), entry, |entry| hash(entry.name));
        self.len.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes units that were refunded. Returns the number of units removed, which is smaller than
    /// `units` if the others are no longer in the backlog.
    pub(super) fn remove(&self, name: u128, units: u64) -> u64 {
        let mut shard = self.shard(name);
        let Some(entry) = shard.find_mut(hash(name), |entry| entry.name == name) else { return 0 };
        let removed = entry.units.min(units);
        entry.units -= removed;
        if entry.units == 0 {
            self.remove_entry(&mut shard, name);
        }
        removed
    }

    /// Removes all units of a key. If the replay has taken units of the key, it cannot add them again.
    /// Returns whether there were any.
    pub(super) fn reset(&self, name: u128) -> bool {
        let mut shard = self.shard(name);
        let is_found = self.remove_entry(&mut shard, name).is_some();
        let mut taken = self.taken(name);
        let before = taken.len();
        taken.retain(|taken| taken.0 != name);
        is_found || taken.len() < before
    }

    /// Removes and returns an entry that still counts. Successive calls visit the shards in turn.
    pub(super) fn take(&self, now: Timestamp) -> Option<TakenEntry<'_>> {
        let next = self.next_shard.fetch_add(1, Ordering::Relaxed);
        for offset in 0..SHARDS {
            if self.is_empty() {
                return None;
            }
            let mut shard = self.lock((next + offset) % SHARDS);
            while let Some(name) = shard.iter().next().map(|entry| entry.name) {
                let entry = self.remove_entry(&mut shard, name)?;
                if !entry.is_expired(now, self.instances) {
                    self.taken(name).insert_unique(hash(name), (name, next), |it| hash(it.0));
                    return Some(TakenEntry { backlog: self, number: next, entry });
                }
            }
            *shard = HashTable::new();
        }
        None
    }

    fn remove_entry(
        &self,
        shard: &mut HashTable<BacklogEntry>,
        name: u128,
    ) -> Option<BacklogEntry> {
        let entry = shard.find_entry(hash(name), |entry| entry.name == name).ok()?;
        self.len.fetch_sub(1, Ordering::Relaxed);
        Some(entry.remove().0)
    }

    #[inline]
    fn shard(&self, name: u128) -> MutexGuard<'_, HashTable<BacklogEntry>> {
        self.lock(shard_of(name))
    }

    fn taken(&self, name: u128) -> MutexGuard<'_, HashTable<(u128, usize)>> {
        self.shards[shard_of(name)].taken.lock()
    }

    #[inline]
    fn lock(&self, shard: usize) -> MutexGuard<'_, HashTable<BacklogEntry>> {
        self.shards[shard].entries.lock()
    }
}

#[inline]
fn shard_of(name: u128) -> usize {
    (name >> 64) as usize % SHARDS
}

/// Returns the hash of a name. Names are hashes already, so a part of the name suffices.
#[inline]
fn hash(name: u128) -> u64 {
    name as u64
}

#[cfg(test)]
mod tests;
