//! What was admitted without the store, and is to be charged to it.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use hashbrown::HashTable;

use crate::{charge::Charge, clock::Timestamp};

/// The most keys remembered. Of more, the units are forgotten: the store then never hears of them.
const MOST: usize = 100_000;
/// So many that two threads rarely meet in one.
const SHARDS: usize = 64;

/// Units by policy and key.
#[derive(Debug)]
pub(super) struct Owed {
    shards: Box<[Padded]>,
    /// How many debts there are.
    count: AtomicUsize,
    /// The shard that is taken from next.
    next: AtomicUsize,
}

/// Shards on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

#[derive(Debug, Default)]
struct Shard {
    debts: Vec<Debt>,
    /// Where each name is among the debts.
    positions: HashTable<u32>,
}

#[derive(Debug)]
pub(super) struct Debt {
    name: u128,
    charge: Charge<'static>,
    units: u64,
    /// When the last of them was admitted.
    time: Timestamp,
}

impl Debt {
    pub(super) fn charge(&self) -> Charge<'static> {
        self.charge.clone().again(self.units)
    }

    /// Whether the units have not all come back by now.
    fn matters(&self, now: Timestamp) -> bool {
        now.as_micros() < self.time.as_micros() + self.charge.quota_in_force().window_micros()
    }
}

impl Default for Owed {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            count: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }
}

impl Owed {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Notes units that were admitted. The name tells the charge's standing from all others, and
    /// nobody outside can choose it.
    #[inline]
    pub(super) fn add(&self, name: u128, charge: &Charge<'_>, units: u64, time: Timestamp) {
        let mut shard = self.shard(name);
        match shard.position(name) {
            Some(position) => {
                let debt = &mut shard.debts[position];
                debt.units = debt.units.saturating_add(units);
                debt.time = debt.time.max(time);
            }
            None => self.insert(&mut shard, name, charge, units, time),
        }
    }

    #[inline(never)]
    fn insert(
        &self,
        shard: &mut Shard,
        name: u128,
        charge: &Charge<'_>,
        units: u64,
        time: Timestamp,
    ) {
        if self.count.load(Ordering::Relaxed) >= MOST {
            let freed = shard.expire(time);
            self.count.fetch_sub(freed, Ordering::Relaxed);
            if freed == 0 {
                return;
            }
        }
        shard.push(Debt { name, charge: charge.clone().into_owned(), units, time });
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets units that were given back, as far as they are still owed; says how many.
    pub(super) fn remove(&self, name: u128, units: u64) -> u64 {
        let mut shard = self.shard(name);
        let Some(position) = shard.position(name) else { return 0 };
        let debt = &mut shard.debts[position];
        let removed = debt.units.min(units);
        debt.units -= removed;
        if debt.units == 0 {
            shard.take(position);
            self.count.fetch_sub(1, Ordering::Relaxed);
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
            while let Some(last) = shard.debts.len().checked_sub(1) {
                let debt = shard.take(last);
                self.count.fetch_sub(1, Ordering::Relaxed);
                if debt.matters(now) {
                    return Some(debt);
                }
            }
        }
        None
    }

    /// Puts back what was not charged after all.
    pub(super) fn put_back(&self, debt: Debt) {
        self.add(debt.name, &debt.charge, debt.units, debt.time);
    }

    #[inline]
    fn shard(&self, name: u128) -> MutexGuard<'_, Shard> {
        self.lock((name >> 64) as usize % SHARDS)
    }

    #[inline]
    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    #[inline]
    fn position(&self, name: u128) -> Option<usize> {
        let is = |position: &u32| self.debts[*position as usize].name == name;
        self.positions.find(hash(name), is).map(|position| *position as usize)
    }

    fn push(&mut self, debt: Debt) {
        let (position, hash_) = (self.debts.len() as u32, hash(debt.name));
        self.debts.push(debt);
        let debts = &self.debts;
        let rehash = |position: &u32| hash(debts[*position as usize].name);
        self.positions.insert_unique(hash_, position, rehash);
    }

    /// Takes out the debt at a position; the last one takes its place.
    fn take(&mut self, position: usize) -> Debt {
        let last = self.debts.len() - 1;
        self.point(position, None);
        if position != last {
            self.point(last, Some(position as u32));
        }
        self.debts.swap_remove(position)
    }

    /// Lets the entry that points to a debt point elsewhere.
    fn point(&mut self, position: usize, to: Option<u32>) {
        let hash = hash(self.debts[position].name);
        if let Ok(mut entry) = self.positions.find_entry(hash, |it| *it as usize == position) {
            match to {
                Some(to) => *entry.get_mut() = to,
                None => drop(entry.remove()),
            }
        }
    }

    /// Forgets what no longer matters; says how many debts that were.
    fn expire(&mut self, now: Timestamp) -> usize {
        let before = self.debts.len();
        for position in (0..before).rev() {
            if !self.debts[position].matters(now) {
                self.take(position);
            }
        }
        before - self.debts.len()
    }
}

#[inline]
fn hash(name: u128) -> u64 {
    name as u64
}
