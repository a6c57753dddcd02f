//! The units that this process admitted without the store, and will charge to it later.

use std::sync::{
    MutexGuard,
    atomic::{AtomicUsize, Ordering},
};

use hashbrown::HashTable;

use crate::{clock::Timestamp, policy::Charge, sync::Mutex};

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
    /// The time at which the last unit was admitted.
    last: Timestamp,
    /// The charge is boxed so that the fields that change with each admission lie close together.
    charge: Box<Charge<'static>>,
}

impl BacklogEntry {
    /// Returns whether the store would have forgotten the units.
    fn is_expired(&self, now: Timestamp) -> bool {
        let quota = self.charge.quota_in_force();
        // The time in which a bucket refills. It is a window under the other algorithms.
        let windows = quota.capacity().div_ceil(quota.limit());
        let until = quota.window_micros().saturating_mul(windows);
        now.as_micros().saturating_sub(self.last.as_micros()) >= until
    }
}

impl Backlog {
    /// Creates an empty backlog.
    pub(super) fn new() -> Self {
        Self::with_max_shard_len(MAX_ENTRIES / SHARDS)
    }

    fn with_max_shard_len(max_shard_len: usize) -> Self {
        let shards = (0..SHARDS).map(|_| BacklogShard::default()).collect();
        Self { shards, len: AtomicUsize::new(0), max_shard_len }
    }

    pub(in crate::remote) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Adds units that were admitted at `time`. `name` identifies the policy and the key; clients
    /// cannot choose it.
    pub(super) fn add(&self, name: u128, charge: &Charge<'_>, units: u64, time: Timestamp) {
        let mut entries = self.shard(name);
        match entries.table.find_mut(hash(name), |entry| entry.name == name) {
            Some(entry) => {
                entry.units = entry.units.saturating_add(units);
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
            entries.table.retain(|entry| !entry.is_expired(time));
            self.len.fetch_sub(before - entries.table.len(), Ordering::Relaxed);
            if entries.table.len() == before {
                return;
            }
        }
        let charge = Box::new(charge.clone().into_owned());
        let entry = BacklogEntry { name, units, last: time, charge };
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

    /// Removes all units of a key.
    pub(super) fn reset(&self, name: u128) {
        self.remove_entry(&mut self.shard(name), name);
    }

    /// Removes up to `max` entries of a shard, without the entries whose charge `is_rejected`. Returns charges
    /// of their units, and the time of the last unit of each.
    pub(super) fn take(
        &self,
        shard: usize,
        max: usize,
        is_rejected: impl Fn(&Charge<'_>) -> bool,
    ) -> Vec<(Charge<'static>, Timestamp)> {
        let mut entries = self.shards[shard].0.lock();
        let taken = entries.table.extract_if(|entry| !is_rejected(&entry.charge));
        let taken: Vec<_> =
            taken.take(max).map(|it| (it.charge.with_cost(it.units), it.last)).collect();
        self.len.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
    }

    fn remove_entry(&self, entries: &mut Entries, name: u128) {
        if let Ok(entry) = entries.table.find_entry(hash(name), |entry| entry.name == name) {
            entry.remove();
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn shard(&self, name: u128) -> MutexGuard<'_, Entries> {
        self.shards[(name >> 64) as usize % SHARDS].0.lock()
    }
}

/// Returns the hash of a name. Names are hashes already, so a part of the name suffices.
fn hash(name: u128) -> u64 {
    name as u64
}

#[cfg(test)]
mod tests;
