//! The quotas of single keys, which replace the quota of their policy for a time.

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use super::{
    key_table::{KeyDigest, KeySecret, KeyTable},
    seq_lock::SeqLock,
};
use crate::{
    clock::{Clock, SystemClock, micros, wall_time},
    error::Error,
    key::Key,
    quota::Quota,
};

/// A quota that is [set for one key](crate::Policy::set_key_quota) of a policy.
///
/// [`Debug`](std::fmt::Debug) prints a digest of the key, as [`Key`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyQuota {
    key: Key,
    quota: Quota,
    until: SystemTime,
}

impl KeyQuota {
    pub(super) fn new(key: Key, quota: Quota, until: SystemTime) -> Self {
        Self { key, quota, until }
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the quota of the key.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the time at which the quota ends.
    #[must_use]
    pub fn until(&self) -> SystemTime {
        self.until
    }
}

/// The quotas of the keys of a policy. Until the first one is set, it is a null pointer.
#[derive(Default)]
pub(super) struct KeyQuotas(OnceLock<Box<LiveKeyQuotas>>);

/// The numbers of slots of the tables.
const SLOTS: [usize; 3] = [64, 1_024, 16_384];

struct LiveKeyQuotas {
    secret: KeySecret,
    /// The number of the table in use, from 1 on, and 0 if no key has a quota.
    level: AtomicUsize,
    tables: [OnceLock<KeyTable>; SLOTS.len()],
    lock: SeqLock<KeyQuotaEntries>,
    clock: SystemClock,
}

#[derive(Default)]
struct KeyQuotaEntries {
    /// The quotas, with their ends by the clock.
    by_key: BTreeMap<Key, (KeyQuota, u64)>,
    /// The slots of the table that are not empty. Keys that were removed keep theirs.
    used_slots: usize,
}

impl KeyQuotas {
    /// The maximum number of keys.
    pub(super) const MAX: usize = 10_000;

    /// Returns the quota of a key that is in force.
    #[inline(always)]
    pub(super) fn of(&self, key: &Key) -> Option<Quota> {
        // The digest is computed here and passed in registers, so that the key stays where the charge needs
        // it (`benches/check.rs`, key quotas).
        self.0.get().and_then(|live| live.of(live.secret.digest(key)))
    }

    pub(super) fn set(&self, new: KeyQuota) -> Result<(), Error> {
        self.0.get_or_init(|| Box::new(LiveKeyQuotas::new())).set(new)
    }

    pub(super) fn remove(&self, key: &Key) -> bool {
        self.0.get().is_some_and(|live| live.remove(key))
    }

    /// Returns the quotas that are in force, in the order of the keys.
    pub(super) fn list(&self) -> Vec<KeyQuota> {
        self.0.get().map(|live| live.list()).unwrap_or_default()
    }

    /// Returns a copy, which later changes do not change.
    pub(super) fn copy(&self) -> Self {
        let copy = Self::default();
        // There are no more of them than one policy can have.
        self.list().into_iter().for_each(|entry| drop(copy.set(entry)));
        copy
    }
}

impl LiveKeyQuotas {
    fn new() -> Self {
        Self {
            secret: KeySecret::random(),
            level: AtomicUsize::default(),
            tables: Default::default(),
            lock: SeqLock::default(),
            clock: SystemClock::default(),
        }
    }

    #[inline(never)]
    fn of(&self, digest: KeyDigest) -> Option<Quota> {
        let (quota, end) = self.lock.read(|| self.table()?.find(digest))?;
        (self.now() < end).then_some(quota)
    }

    fn set(&self, new: KeyQuota) -> Result<(), Error> {
        let now = self.now();
        let left = new.until.duration_since(wall_time()).unwrap_or_default();
        let end = now.saturating_add(micros(left));
        if end == now {
            self.remove(&new.key);
            return Ok(());
        }
        let mut writer = self.lock.writer();
        let entries = &mut *writer.owned;
        if entries.by_key.len() >= KeyQuotas::MAX && !entries.by_key.contains_key(&new.key) {
            entries.forget_ended(now);
            if entries.by_key.len() >= KeyQuotas::MAX {
                return Err(too_many());
            }
        }
        entries.by_key.insert(new.key, (new, end));
        match self.table() {
            Some(table) if entries.used_slots < max_used_slots(table.slots()) => {
                writer.change(|entries| entries.add_to(table, &self.secret, &new, end));
            }
            _ => {
                entries.forget_ended(now);
                let level = level_of(entries.by_key.len());
                let table = self.tables[level - 1].get_or_init(|| KeyTable::new(SLOTS[level - 1]));
                writer.change(|entries| {
                    entries.copy_to(table, &self.secret);
                    self.level.store(level, Ordering::Release);
                });
            }
        }
        Ok(())
    }

    fn remove(&self, key: &Key) -> bool {
        let mut writer = self.lock.writer();
        let Some((entry, end)) = writer.owned.by_key.remove(key) else { return false };
        writer.change(|entries| {
            if let Some(table) = self.table() {
                entries.add_to(table, &self.secret, &entry, 0);
            }
            if entries.by_key.is_empty() {
                self.level.store(0, Ordering::Release);
            }
        });
        self.now() < end
    }

    fn list(&self) -> Vec<KeyQuota> {
        let now = self.now();
        let writer = self.lock.writer();
        let entries = writer.owned.by_key.values();
        entries.filter(|(_, end)| now < *end).map(|(entry, _)| *entry).collect()
    }

    /// Returns the table in use.
    #[inline]
    fn table(&self) -> Option<&KeyTable> {
        let level = self.level.load(Ordering::Acquire);
        self.tables.get(level.wrapping_sub(1))?.get()
    }

    #[inline]
    fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }
}

impl KeyQuotaEntries {
    /// Adds an entry to the table in use, or changes it there.
    fn add_to(&mut self, table: &KeyTable, secret: &KeySecret, entry: &KeyQuota, end: u64) {
        let is_new = table.set(secret.digest(&entry.key), entry.quota, end);
        self.used_slots += usize::from(is_new);
    }

    /// Fills a table with all entries and nothing else.
    fn copy_to(&mut self, table: &KeyTable, secret: &KeySecret) {
        table.clear();
        for (entry, end) in self.by_key.values() {
            table.set(secret.digest(&entry.key), entry.quota, *end);
        }
        self.used_slots = self.by_key.len();
    }

    fn forget_ended(&mut self, now: u64) {
        self.by_key.retain(|_, (_, end)| now < *end);
    }
}

/// Returns the number of slots of a table that may be used. The other ones end each search.
const fn max_used_slots(slots: usize) -> usize {
    slots / 4 * 3
}

const _: () = assert!(max_used_slots(SLOTS[2]) > KeyQuotas::MAX);

/// Returns the number of the table for so many keys, with room for others.
fn level_of(keys: usize) -> usize {
    let has_room = |slots: &usize| keys <= max_used_slots(*slots) / 2;
    SLOTS.iter().position(has_room).unwrap_or(SLOTS.len() - 1) + 1
}

#[cold]
fn too_many() -> Error {
    Error::invalid(
        "number of keys with a quota of their own",
        format_args!("more than {}", KeyQuotas::MAX),
        format_args!("at most {}", KeyQuotas::MAX),
    )
}
