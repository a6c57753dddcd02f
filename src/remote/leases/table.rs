//! The stocks of all busy keys.

use std::sync::{
    MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use hashbrown::HashTable;
use tokio::sync::watch;

use super::{
    super::fingerprint::{Fingerprint, FingerprintSecret},
    demand::{BUSY_CHECKS, Candidates},
    grants::Leftovers,
    stock::{RenewalRequest, Stock},
};
use crate::{decision::ReceiptLine, policy::Charge, sync::Mutex};

/// The stocks of all busy keys, in shards. An entry has a fixed size, so the maximum number of keys
/// also bounds the bytes.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Shard]>,
    candidates: Candidates,
    secret: FingerprintSecret,
    keys: AtomicUsize,
    generations: AtomicU64,
    /// True if the store [marks](crate::store::Traits::marks_debts) charges to token buckets with their
    /// debt.
    marks_debts: bool,
}

/// A shard has a cache line of its own, so that threads that use different shards do not contend.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(Mutex<Entries>);

/// The stocks of a shard.
#[derive(Debug, Default)]
pub(super) struct Entries(HashTable<Entry>);

/// The stock of one key.
#[derive(Debug)]
pub(super) struct Entry {
    fingerprint: Fingerprint,
    /// A charge to the key, from which renewals and refunds are made.
    pub(super) charge: Charge<'static>,
    pub(super) stock: Stock,
    /// The end of the last renewal.
    pub(super) renewal_end: Option<RenewalEnd>,
}

/// The end of a renewal: the channel is closed then.
pub(super) type RenewalEnd = watch::Receiver<()>;

/// A renewal to send.
pub(super) struct NewRenewal {
    pub(super) fingerprint: Fingerprint,
    pub(super) charge: Charge<'static>,
    pub(super) request: RenewalRequest,
    pub(super) end: watch::Sender<()>,
}

/// The maximum number of keys with a stock: about 8 MiB of them. While there are as many, the checks
/// of other keys are sent to the store.
const MAX_KEYS: usize = 1 << 14;

const SHARDS: usize = 1 << 8;

impl Table {
    pub(super) fn new(marks_debts: bool) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            candidates: Candidates::new(),
            secret: FingerprintSecret::new(),
            keys: AtomicUsize::new(0),
            generations: AtomicU64::new(0),
            marks_debts,
        }
    }

    pub(super) fn fingerprint(&self, charge: &Charge<'_>) -> Fingerprint {
        self.secret.fingerprint(charge)
    }

    /// Locks the shard of a key.
    pub(super) fn lock(&self, fingerprint: Fingerprint) -> MutexGuard<'_, Entries> {
        self.lock_shard(fingerprint.1 as usize % SHARDS)
    }

    fn lock_shard(&self, number: usize) -> MutexGuard<'_, Entries> {
        self.shards[number].0.lock()
    }

    /// Counts a check of a key without a stock, and creates the stock if the key is busy. Returns
    /// whether it is.
    pub(super) fn observe(&self, fingerprint: Fingerprint, charge: &Charge<'_>, now: u64) -> bool {
        let refresh = charge.quota().lease().unwrap_or_default().as_micros() as u64 / 2;
        if !self.candidates.observe(fingerprint, now, refresh) {
            return false;
        }
        let mut entries = self.lock(fingerprint);
        if entries.find(fingerprint).is_some() {
            return true;
        }
        let entry = self.insert(&mut entries, fingerprint, charge, now);
        entry
            .map(|it| (0..BUSY_CHECKS).for_each(|_| it.stock.observe(now, charge.cost())))
            .is_some()
    }

    /// Creates the empty stock of a key that has none, unless the table is full.
    pub(super) fn insert<'e>(
        &self,
        entries: &'e mut Entries,
        fingerprint: Fingerprint,
        charge: &Charge<'_>,
        now: u64,
    ) -> Option<&'e mut Entry> {
        if self.keys.load(Relaxed) >= MAX_KEYS {
            return None;
        }
        self.keys.fetch_add(1, Relaxed);
        let mut stock = Stock::new(*charge.quota(), self.next_generation(), now);
        stock.set_debt_marks(self.has_debt_marks(charge));
        let charge = charge.clone().into_owned();
        entries.insert(Entry { fingerprint, charge, stock, renewal_end: None });
        entries.find(fingerprint)
    }

    /// Replaces the quota of a stock by the quota of a charge. Returns the units of the old one.
    pub(super) fn change_quota(
        &self,
        entry: &mut Entry,
        charge: &Charge<'_>,
        now: u64,
    ) -> Leftovers {
        let generation = self.next_generation();
        let leftovers = entry.stock.change_quota(*charge.quota(), generation, now);
        entry.stock.set_debt_marks(self.has_debt_marks(charge));
        leftovers
    }

    /// Returns whether the store marks a charge with the debt of a token bucket.
    fn has_debt_marks(&self, charge: &Charge<'_>) -> bool {
        self.marks_debts && charge.quota().algorithm().has_debt_marks()
    }

    /// Returns a generation that no stock has had.
    pub(super) fn next_generation(&self) -> u64 {
        self.generations.fetch_add(1, Relaxed) + 1
    }

    /// Returns the number of keys with a stock.
    pub(super) fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// Returns the number of keys whose stock has units at `now`, and the number of units in all stocks.
    pub(super) fn held(&self, now: u64) -> (usize, u64) {
        let mut keys = 0;
        let mut units = 0;
        self.retain(|entry| {
            let held = entry.stock.units_at(now);
            keys += usize::from(held > 0);
            units += held;
            true
        });
        (keys, units)
    }

    /// Visits the stocks of all keys, and removes those for which `stays` is false.
    pub(super) fn retain(&self, mut stays: impl FnMut(&mut Entry) -> bool) {
        for number in 0..self.shards.len() {
            let mut entries = self.lock_shard(number);
            let before = entries.0.len();
            entries.0.retain(&mut stays);
            self.keys.fetch_sub(before - entries.0.len(), Relaxed);
        }
    }
}

impl Entries {
    pub(super) fn find(&mut self, fingerprint: Fingerprint) -> Option<&mut Entry> {
        self.0.find_mut(fingerprint.0, |entry| entry.fingerprint == fingerprint)
    }

    fn insert(&mut self, entry: Entry) {
        self.0.insert_unique(entry.fingerprint.0, entry, |entry| entry.fingerprint.0);
    }
}

impl Entry {
    /// Creates the renewal of a request. Checks can wait for its end.
    pub(super) fn begin_renewal(&mut self, request: RenewalRequest) -> NewRenewal {
        let (end, receiver) = watch::channel(());
        self.renewal_end = Some(receiver);
        let charge = self.charge.leasing(request.cost, request.max);
        NewRenewal { fingerprint: self.fingerprint, charge, request, end }
    }

    /// Returns the lines of the receipt with which these units are refunded to the store.
    pub(super) fn lines(&self, leftovers: Leftovers) -> impl Iterator<Item = ReceiptLine> {
        leftovers.into_iter().map(|it| ReceiptLine::new(self.charge.clone(), it.units, it.mark))
    }
}
