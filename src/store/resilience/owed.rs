//! What was admitted without the store, and is to be charged to it.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use hashbrown::HashTable;

use crate::{algorithm::still_count, clock::Timestamp, policy::Charge};

/// The most keys remembered. Of more, the units are forgotten: the store then never hears of them.
const MOST: usize = 100_000;
/// So many that two threads rarely meet in one.
const SHARDS: usize = 64;

/// Units by policy and key.
#[derive(Debug)]
pub(super) struct Owed {
    shards: Box<[Padded]>,
    /// How many debts there are, and how many there can be.
    count: AtomicUsize,
    most: usize,
    /// In how many parts each quota is shared.
    parts: u32,
    /// The shard that is taken from next.
    next: AtomicUsize,
}

/// Shards on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<HashTable<Debt>>);

#[derive(Debug)]
pub(super) struct Debt {
    name: u128,
    units: u64,
    /// When the first and the last of them were admitted.
    first: Timestamp,
    last: Timestamp,
    /// Boxed, so that what changes all the time lies close together.
    charge: Box<Charge<'static>>,
}

impl Debt {
    pub(super) fn charge(&self) -> Charge<'static> {
        Charge::clone(&self.charge).with_cost(self.units)
    }

    /// How many of its units still count at least and at most, by an instance that admits one of so
    /// many parts of the quota: as many as if all had been admitted with the first, or with the last.
    pub(super) fn still_counts(&self, now: Timestamp, parts: u32) -> (u64, u64) {
        (self.counts(self.first, now, parts), self.counts(self.last, now, parts))
    }

    /// Whether any of it still counts.
    fn matters(&self, now: Timestamp, parts: u32) -> bool {
        self.counts(self.last, now, parts) > 0
    }

    fn counts(&self, since: Timestamp, now: Timestamp, parts: u32) -> u64 {
        still_count(&self.charge.quota_in_force(), parts, self.units, since, now)
    }
}

impl Owed {
    /// Nothing owed, by an instance that admits one of so many parts of each quota.
    pub(super) fn new(parts: u32) -> Self {
        Self::of(MOST, parts)
    }

    fn of(most: usize, parts: u32) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            count: AtomicUsize::new(0),
            most,
            parts,
            next: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Notes units that were admitted. The name tells the charge's standing from all others, and
    /// nobody outside can choose it.
    #[inline]
    pub(super) fn add(&self, name: u128, charge: &Charge<'_>, units: u64, time: Timestamp) {
        self.add_since(name, charge, units, (time, time));
    }

    #[inline]
    fn add_since(
        &self,
        name: u128,
        charge: &Charge<'_>,
        units: u64,
        (first, last): (Timestamp, Timestamp),
    ) {
        let mut shard = self.shard(name);
        match shard.find_mut(hash(name), |debt| debt.name == name) {
            Some(debt) => {
                debt.units = debt.units.saturating_add(units);
                debt.first = debt.first.min(first);
                debt.last = debt.last.max(last);
            }
            None => self.insert(&mut shard, name, charge, units, (first, last)),
        }
    }

    #[inline(never)]
    fn insert(
        &self,
        shard: &mut HashTable<Debt>,
        name: u128,
        charge: &Charge<'_>,
        units: u64,
        (first, last): (Timestamp, Timestamp),
    ) {
        if self.count.load(Ordering::Relaxed) >= self.most {
            let before = shard.len();
            shard.retain(|debt| debt.matters(last, self.parts));
            self.count.fetch_sub(before - shard.len(), Ordering::Relaxed);
            if before == shard.len() {
                return;
            }
        }
        let charge = Box::new(charge.clone().into_owned());
        let debt = Debt { name, units, first, last, charge };
        shard.insert_unique(hash(name), debt, |debt| hash(debt.name));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets units that were given back, as far as they are still owed; says how many.
    pub(super) fn remove(&self, name: u128, units: u64) -> u64 {
        let mut shard = self.shard(name);
        let Some(debt) = shard.find_mut(hash(name), |debt| debt.name == name) else { return 0 };
        let removed = debt.units.min(units);
        debt.units -= removed;
        if debt.units == 0 {
            self.pull(&mut shard, name);
        }
        removed
    }

    /// Takes out a debt that still matters, of one shard after the other.
    pub(super) fn take(&self, now: Timestamp) -> Option<Debt> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        for offset in 0..SHARDS {
            if self.is_empty() {
                return None;
            }
            let mut shard = self.lock((next + offset) % SHARDS);
            while let Some(name) = shard.iter().next().map(|debt| debt.name) {
                let debt = self.pull(&mut shard, name)?;
                if debt.matters(now, self.parts) {
                    return Some(debt);
                }
            }
            *shard = HashTable::new();
        }
        None
    }

    fn pull(&self, shard: &mut HashTable<Debt>, name: u128) -> Option<Debt> {
        let entry = shard.find_entry(hash(name), |debt| debt.name == name).ok()?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(entry.remove().0)
    }

    /// Puts back what was not charged after all.
    pub(super) fn put_back(&self, debt: Debt) {
        self.add_since(debt.name, &debt.charge, debt.units, (debt.first, debt.last));
    }

    #[inline]
    fn shard(&self, name: u128) -> MutexGuard<'_, HashTable<Debt>> {
        self.lock((name >> 64) as usize % SHARDS)
    }

    #[inline]
    fn lock(&self, shard: usize) -> MutexGuard<'_, HashTable<Debt>> {
        self.shards[shard].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[inline]
fn hash(name: u128) -> u64 {
    name as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::Policy;

    const SECOND: u64 = 1_000_000;

    #[derive(Debug, Clone)]
    enum Step {
        Add(u64, u64),
        Remove(u64, u64),
        Take,
        PutBack,
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Few names in few shards, so that they meet.
        let name = || (0..3_u64, 0..5_u64).prop_map(|(shard, low)| shard << 32 | low);
        let step = prop_oneof![
            6 => (name(), 1..4_u64).prop_map(|(name, units)| Step::Add(name, units)),
            3 => (name(), 1..6_u64).prop_map(|(name, units)| Step::Remove(name, units)),
            3 => Just(Step::Take),
            1 => Just(Step::PutBack),
            1 => (0..2 * SECOND / 3).prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 1..200)
    }

    fn time(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn it_is_a_map_of_what_was_added_and_not_removed(steps in steps()) {
            let policy = Policy::new("p", "10/s".parse().unwrap()).unwrap();
            let wide = |name: u64| u128::from(name >> 32) << 64 | u128::from(name & 0xFFFF_FFFF);
            let (owed, mut model) = (Owed::new(1), BTreeMap::<u64, (u64, u64)>::new());
            let (mut now, mut out) = (0, Vec::new());
            for step in steps {
                match step {
                    Step::Add(name, units) => {
                        owed.add(wide(name), &policy.charge(name, 1), units, time(now));
                        let debt = model.entry(name).or_default();
                        *debt = (debt.0 + units, now);
                    }
                    Step::Remove(name, units) => {
                        let debt = model.get(&name).map_or(0, |debt| debt.0);
                        prop_assert_eq!(owed.remove(wide(name), units), debt.min(units));
                        model.entry(name).and_modify(|debt| debt.0 -= debt.0.min(units));
                    }
                    Step::Take => {
                        let taken = owed.take(time(now));
                        let live = |(_, debt): &(&u64, &(u64, u64))| now < debt.1 + SECOND;
                        prop_assert_eq!(taken.is_some(), model.iter().any(|debt| live(&debt)));
                        if let Some(debt) = taken {
                            let name = (debt.name >> 64 << 32) as u64 | debt.name as u64;
                            prop_assert_eq!(debt.charge().cost(), debt.units);
                            prop_assert_eq!(model.remove(&name).map(|debt| debt.0), Some(debt.units));
                            out.push((name, debt));
                        }
                        // What no longer matters may have been forgotten on the way.
                        let there = |name: &u64| {
                            let name = wide(*name);
                            owed.shard(name).find(hash(name), |debt| debt.name == name).is_some()
                        };
                        model.retain(|name, debt| now < debt.1 + SECOND || there(name));
                    }
                    Step::PutBack => {
                        for (name, debt) in out.drain(..) {
                            let there = model.entry(name).or_default();
                            *there = (there.0 + debt.units, there.1.max(debt.last.as_micros()));
                            owed.put_back(debt);
                        }
                    }
                    Step::Pass(by) => now += by,
                }
                model.retain(|_, debt| debt.0 > 0);
                prop_assert_eq!(owed.is_empty(), model.is_empty());
                let count: usize = owed.shards.iter().map(|it| it.0.lock().unwrap().len()).sum();
                prop_assert_eq!(owed.count.load(Ordering::Relaxed), count);
            }
        }
    }

    #[test]
    fn of_more_than_fit_the_expired_go_first() {
        let (policy, owed) = (Policy::new("p", "10/s".parse().unwrap()).unwrap(), Owed::of(3, 1));
        let add = |name: u128, micros| owed.add(name, &policy.charge("k", 1), 1, time(micros));
        (0..5).for_each(|name| add(name, name as u64));
        assert_eq!(owed.count.load(Ordering::Relaxed), 3);
        add(1, 10);
        add(7, SECOND + 1);
        let mut left: Vec<u128> = Vec::new();
        while let Some(debt) = owed.take(time(SECOND + 2)) {
            left.push(debt.name);
        }
        left.sort_unstable();
        assert_eq!(left, [1, 7]);
    }
}
