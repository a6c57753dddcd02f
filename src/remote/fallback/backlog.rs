//! The units that this process admitted without the store, and will charge to it later.

use std::sync::{
    MutexGuard,
    atomic::{AtomicUsize, Ordering},
};

use hashbrown::HashTable;

use crate::{algorithm::outstanding_of, clock::Timestamp, policy::Charge, sync::Mutex};

/// The maximum number of entries. Units beyond it are never charged to the store.
const MAX_ENTRIES: usize = 100_000;
/// The number of shards, each with its own lock. With 64, two threads rarely wait for the same one.
pub(super) const SHARDS: usize = 64;
/// The least time between two searches of a full shard for entries that have expired, in
/// microseconds. So clients with ever new keys do not have the shard searched with each check.
const SWEEP_INTERVAL_MICROS: u64 = 1_000_000;

/// A table of units by policy and key.
#[derive(Debug)]
pub(in crate::remote) struct Backlog {
    shards: Box<[BacklogShard]>,
    len: AtomicUsize,
    max_shard_len: usize,
    /// The number of instances that share each quota.
    instances: u32,
}

/// A part of the backlog. The alignment keeps two shards off the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct BacklogShard(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    table: HashTable<BacklogEntry>,
    /// The time of the next search for entries that have expired, in microseconds.
    next_sweep: u64,
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

impl Backlog {
    /// Creates an empty backlog.
    pub(super) fn new(instances: u32) -> Self {
        Self::with_max_shard_len(MAX_ENTRIES / SHARDS, instances)
    }

    fn with_max_shard_len(max_shard_len: usize, instances: u32) -> Self {
        let shards = (0..SHARDS).map(|_| BacklogShard::default()).collect();
        Self { shards, len: AtomicUsize::new(0), max_shard_len, instances }
    }

    #[inline]
    pub(in crate::remote) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Adds units that were admitted at `time`. `name` identifies the policy and the key; clients
    /// cannot choose it.
    #[inline]
    pub(super) fn add(&self, name: u128, charge: &Charge<'_>, units: u64, time: Timestamp) {
        let mut entries = self.shard(name);
        match entries.table.find_mut(hash(name), |entry| entry.name == name) {
            Some(entry) => {
                entry.units = entry.units.saturating_add(units);
                entry.first = entry.first.min(time);
                entry.last = entry.last.max(time);
            }
            None => self.insert(&mut entries, name, charge, units, time),
        }
    }

    fn insert(
        &self,
        entries: &mut Entries,
        name: u128,
        charge: &Charge<'_>,
        units: u64,
        time: Timestamp,
    ) {
        if entries.table.len() >= self.max_shard_len {
            if time.as_micros() < entries.next_sweep {
                return;
            }
            entries.next_sweep = time.as_micros().saturating_add(SWEEP_INTERVAL_MICROS);
            let before = entries.table.len();
            entries.table.retain(|entry| !entry.is_expired(time, self.instances));
            self.len.fetch_sub(before - entries.table.len(), Ordering::Relaxed);
            if entries.table.len() == before {
                return;
            }
        }
        let charge = Box::new(charge.clone().into_owned());
        let entry = BacklogEntry { name, units, first: time, last: time, charge };
        entries.table.insert_unique(hash(name), entry, |entry| hash(entry.name));
        self.len.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes units that were refunded. Returns the number of units removed, which is smaller than
    /// `units` if the others are no longer in the backlog.
    pub(super) fn remove(&self, name: u128, units: u64) -> u64 {
        let mut entries = self.shard(name);
        let found = entries.table.find_mut(hash(name), |entry| entry.name == name);
        let Some(entry) = found else { return 0 };
        let removed = entry.units.min(units);
        entry.units -= removed;
        if entry.units == 0 {
            self.remove_entry(&mut entries, name);
        }
        removed
    }

    /// Removes all units of a key. Returns whether there were any.
    pub(super) fn reset(&self, name: u128) -> bool {
        self.remove_entry(&mut self.shard(name), name)
    }

    /// Removes and returns up to `max` entries of a shard, without the entries that still count and whose
    /// charge `is_rejected`.
    pub(super) fn take(
        &self,
        shard: usize,
        max: usize,
        now: Timestamp,
        is_rejected: impl Fn(&Charge<'_>) -> bool,
    ) -> Vec<BacklogEntry> {
        let mut entries = self.shards[shard].0.lock();
        let taken = entries.table.extract_if(|entry| {
            !is_rejected(&entry.charge) || entry.is_expired(now, self.instances)
        });
        let taken: Vec<_> = taken.take(max).collect();
        self.len.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
    }

    fn remove_entry(&self, entries: &mut Entries, name: u128) -> bool {
        let found = entries.table.find_entry(hash(name), |entry| entry.name == name);
        let is_found = found.map(|entry| entry.remove()).is_ok();
        self.len.fetch_sub(usize::from(is_found), Ordering::Relaxed);
        is_found
    }

    #[inline]
    fn shard(&self, name: u128) -> MutexGuard<'_, Entries> {
        self.shards[(name >> 64) as usize % SHARDS].0.lock()
    }
}

/// Returns the hash of a name. Names are hashes already, so a part of the name suffices.
#[inline]
fn hash(name: u128) -> u64 {
    name as u64
}

#[cfg(test)]
mod tests;
