//! The units that this process admitted without the store, and will charge to it later.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use hashbrown::HashTable;

use crate::{algorithm::outstanding_of, clock::Timestamp, policy::Charge};

/// The maximum number of entries. Units beyond it are never charged to the store.
const MAX_ENTRIES: usize = 100_000;
/// The number of shards, each with its own lock. With 64, two threads rarely wait for the same one.
const SHARDS: usize = 64;
/// The least time between two searches of a full shard for entries that have expired, in
/// microseconds. So clients with ever new keys do not have the shard searched with each check.
const SWEEP_INTERVAL_MICROS: u64 = 1_000_000;

/// A table of units by policy and key.
#[derive(Debug)]
pub(super) struct Backlog {
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
    pub(super) fn is_empty(&self) -> bool {
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
    pub(super) fn reset(&self, name: u128) {
        let mut shard = self.shard(name);
        self.remove_entry(&mut shard, name);
        self.taken(name).retain(|taken| taken.0 != name);
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
        self.shards[shard_of(name)].taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn lock(&self, shard: usize) -> MutexGuard<'_, HashTable<BacklogEntry>> {
        self.shards[shard].entries.lock().unwrap_or_else(PoisonError::into_inner)
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
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{policy::Policy, seed};

    const SECOND: u64 = 1_000_000;

    #[derive(Debug, Clone)]
    enum BacklogStep {
        Add(u64, u64),
        Remove(u64, u64),
        Take,
        AddAgain,
        Reset(u64),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<BacklogStep>> {
        // Few names in few shards, so that they meet.
        let name = || (0..3_u64, 0..5_u64).prop_map(|(shard, low)| shard << 32 | low);
        let step = prop_oneof![
            6 => (name(), 1..4_u64).prop_map(|(name, units)| BacklogStep::Add(name, units)),
            3 => (name(), 1..6_u64).prop_map(|(name, units)| BacklogStep::Remove(name, units)),
            3 => Just(BacklogStep::Take),
            1 => Just(BacklogStep::AddAgain),
            1 => name().prop_map(BacklogStep::Reset),
            1 => (0..2 * SECOND / 3).prop_map(BacklogStep::Pass),
        ];
        prop::collection::vec(step, 1..200)
    }

    fn time(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn is_a_map_of_units_added_and_not_removed() {
        seed::property("backlog", ProptestConfig::default(), steps(), |steps| {
            let policy = Policy::new("p", "10/s".parse().unwrap()).unwrap();
            let wide = |name: u64| u128::from(name >> 32) << 64 | u128::from(name & 0xFFFF_FFFF);
            let (backlog, mut model) = (Backlog::new(1), BTreeMap::<u64, (u64, u64)>::new());
            let (mut now, mut out) = (0, Vec::new());
            for step in steps {
                match step {
                    BacklogStep::Add(name, units) => {
                        backlog.add(wide(name), &policy.charge(name, 1), units, time(now));
                        let entry = model.entry(name).or_default();
                        *entry = (entry.0 + units, now);
                    }
                    BacklogStep::Remove(name, units) => {
                        let entry = model.get(&name).map_or(0, |entry| entry.0);
                        prop_assert_eq!(backlog.remove(wide(name), units), entry.min(units));
                        model.entry(name).and_modify(|entry| entry.0 -= entry.0.min(units));
                    }
                    BacklogStep::Take => {
                        let taken = backlog.take(time(now));
                        let live = |(_, entry): &(&u64, &(u64, u64))| now < entry.1 + SECOND;
                        prop_assert_eq!(taken.is_some(), model.iter().any(|entry| live(&entry)));
                        if let Some(taken) = taken {
                            let entry = taken.entry();
                            let name = (entry.name >> 64 << 32) as u64 | entry.name as u64;
                            prop_assert_eq!(entry.charge().cost(), entry.units);
                            prop_assert_eq!(
                                model.remove(&name).map(|entry| entry.0),
                                Some(entry.units)
                            );
                            out.push((name, taken, false));
                        }
                        // Expired entries may have been dropped on the way.
                        let there = |name: &u64| {
                            let name = wide(*name);
                            backlog
                                .shard(name)
                                .find(hash(name), |entry| entry.name == name)
                                .is_some()
                        };
                        model.retain(|name, entry| now < entry.1 + SECOND || there(name));
                    }
                    BacklogStep::AddAgain => {
                        for (name, taken, is_reset) in out.drain(..) {
                            if !is_reset {
                                let (there, entry) =
                                    (model.entry(name).or_default(), taken.entry());
                                let last = there.1.max(entry.last.as_micros());
                                *there = (there.0 + entry.units, last);
                            }
                            taken.add_again();
                        }
                    }
                    BacklogStep::Reset(name) => {
                        backlog.reset(wide(name));
                        model.remove(&name);
                        out.iter_mut().for_each(|it| it.2 |= it.0 == name);
                    }
                    BacklogStep::Pass(by) => now += by,
                }
                model.retain(|_, entry| entry.0 > 0);
                prop_assert_eq!(backlog.is_empty(), model.is_empty());
                let len: usize =
                    backlog.shards.iter().map(|it| it.entries.lock().unwrap().len()).sum();
                prop_assert_eq!(backlog.len.load(Ordering::Relaxed), len);
                let taken: usize =
                    backlog.shards.iter().map(|it| it.taken.lock().unwrap().len()).sum();
                prop_assert_eq!(taken, out.iter().filter(|it| !it.2).count());
            }
            Ok(())
        });
    }

    /// The replay clamps a number to this range, which panics if the range is empty.
    #[test]
    fn a_quota_that_changes_meanwhile_leaves_the_range_in_order() {
        let policy = Policy::new("p", "10/s".parse().unwrap()).unwrap();
        let charge = Box::new(policy.charge("k", 1).into_owned());
        let (first, last) = (time(0), time(0));
        let entry = BacklogEntry { name: 1, units: 10, first, last, charge };
        let is_over = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while is_over.load(Ordering::Relaxed) == 0 {
                    policy.set_quota("10/h".parse().unwrap());
                    policy.set_quota("10/s".parse().unwrap());
                }
            });
            let wrong = (0..200_000)
                .map(|_| entry.still_counts(time(2 * SECOND), 1))
                .find(|(least, most)| least > most);
            is_over.store(1, Ordering::Relaxed);
            assert_eq!(wrong, None);
        });
    }

    #[test]
    fn expired_entries_are_evicted_first() {
        let (policy, backlog) =
            (Policy::new("p", "10/s".parse().unwrap()).unwrap(), Backlog::with_max_len(3, 1));
        let add = |name: u128, micros| backlog.add(name, &policy.charge("k", 1), 1, time(micros));
        (0..5).for_each(|name| add(name, name as u64));
        assert_eq!(backlog.len.load(Ordering::Relaxed), 3);
        add(1, 10);
        add(6, SECOND - 1);
        assert_eq!(backlog.len.load(Ordering::Relaxed), 3, "it was searched just before");
        add(1, SECOND + SECOND / 2);
        add(7, 2 * SECOND);
        let mut left: Vec<u128> = Vec::new();
        while let Some(taken) = backlog.take(time(2 * SECOND + 1)) {
            left.push(taken.entry.name);
        }
        left.sort_unstable();
        assert_eq!(left, [1, 7]);
    }
}
