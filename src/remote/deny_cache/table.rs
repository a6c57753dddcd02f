//! A table of bounded size, with the last denial of each key and the number of changes of the key
//! by this process.

use std::sync::{
    MutexGuard,
    atomic::{AtomicU64, Ordering},
};

use super::{
    super::fingerprint::{Fingerprint, FingerprintSecret},
    cached_denial::CachedDenial,
};
use crate::{policy::Charge, quota::Quota, sync::Mutex};

/// A set-associative table of denials.
#[derive(Debug)]
pub(super) struct CacheTable {
    /// Each key belongs to one set. A new entry replaces the oldest entry of a full set.
    sets: Box<[Mutex<[Option<CacheEntry>; WAYS]>]>,
    /// Counters of changes. Keys that share a counter void each other's entries, which sometimes
    /// costs a request to the store.
    changes: Box<[Changes]>,
    secret: FingerprintSecret,
}

#[derive(Debug, Default)]
struct Changes {
    /// The number of changes. An entry that is older than the last change is void.
    count: AtomicU64,
    /// The time until which a change may still arrive at the store after its caller has stopped
    /// waiting, in microseconds.
    doubtful_until: AtomicU64,
}

/// The number of entries in a set.
const WAYS: usize = 4;
const SETS: usize = 1 << 12;
const CHANGE_COUNTERS: usize = 1 << 14;

#[derive(Debug)]
struct CacheEntry {
    fingerprint: Fingerprint,
    quota: Quota,
    changes: u64,
    denial: CachedDenial,
}

/// The entry of a key in the table.
pub(super) enum Found {
    Denial(CachedDenial),
    /// An entry that is void, because this process has changed the key since.
    Void,
    Nothing,
}

impl CacheTable {
    pub(super) fn new() -> Self {
        Self {
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
            changes: (0..CHANGE_COUNTERS).map(|_| Changes::default()).collect(),
            secret: FingerprintSecret::new(),
        }
    }

    /// Returns the fingerprint of the charge.
    #[inline]
    pub(super) fn fingerprint(&self, charge: &Charge<'_>) -> Fingerprint {
        self.secret.fingerprint(charge)
    }

    /// Returns the entry of a key under a quota, if it is fresh at `now` and the key has changed no
    /// more than `changes` times.
    #[inline]
    pub(super) fn find(
        &self,
        fingerprint: Fingerprint,
        quota: &Quota,
        changes: u64,
        now: u64,
    ) -> Found {
        let set = self.set(fingerprint);
        let Some(entry) = set.iter().flatten().find(|entry| entry.is_of(fingerprint, quota)) else {
            return Found::Nothing;
        };
        if !entry.denial.is_fresh(quota, now) {
            Found::Nothing
        } else if entry.changes == changes {
            Found::Denial(entry.denial)
        } else {
            Found::Void
        }
    }

    /// Inserts a denial of a check that was sent at `asked_at`, unless the key has changed more
    /// than `changes` times or a change of the key may still arrive at the store.
    pub(super) fn insert(
        &self,
        fingerprint: Fingerprint,
        quota: Quota,
        changes: u64,
        asked_at: u64,
        denial: CachedDenial,
    ) {
        let key = self.changes_of(fingerprint);
        if key.count.load(Ordering::Acquire) != changes
            || asked_at < key.doubtful_until.load(Ordering::Acquire)
        {
            return;
        }
        let mut set = self.set(fingerprint);
        let is_same = |it: &Option<CacheEntry>| {
            it.as_ref().is_some_and(|entry| entry.is_of(fingerprint, &quota))
        };
        let way = set.iter().position(is_same).unwrap_or_else(|| oldest(&set));
        set[way] = Some(CacheEntry { fingerprint, quota, changes, denial });
    }

    /// Returns the number of changes of the key by this process.
    #[inline]
    pub(super) fn changes(&self, fingerprint: Fingerprint) -> u64 {
        self.changes_of(fingerprint).count.load(Ordering::Acquire)
    }

    /// Counts a change of the key, which voids its entry. Returns the number of changes before it.
    pub(super) fn change(&self, fingerprint: Fingerprint) -> u64 {
        self.changes_of(fingerprint).count.fetch_add(1, Ordering::AcqRel)
    }

    /// Counts a change that may arrive at the store until `until`. No entry is kept before that
    /// time.
    pub(super) fn change_until(&self, fingerprint: Fingerprint, until: u64) {
        self.changes_of(fingerprint).doubtful_until.fetch_max(until, Ordering::AcqRel);
        self.change(fingerprint);
    }

    fn set(&self, fingerprint: Fingerprint) -> MutexGuard<'_, [Option<CacheEntry>; WAYS]> {
        self.sets[fingerprint.0 as usize % SETS].lock()
    }

    fn changes_of(&self, fingerprint: Fingerprint) -> &Changes {
        &self.changes[fingerprint.1 as usize % CHANGE_COUNTERS]
    }
}

impl CacheEntry {
    #[inline]
    fn is_of(&self, fingerprint: Fingerprint, quota: &Quota) -> bool {
        self.fingerprint == fingerprint && self.quota == *quota
    }
}

/// Returns the index of an empty way, or else of the oldest entry.
fn oldest(set: &[Option<CacheEntry>; WAYS]) -> usize {
    let mut oldest = 0;
    for (way, entry) in set.iter().enumerate() {
        match (entry, &set[oldest]) {
            (None, _) => return way,
            (Some(entry), Some(other)) if entry.denial.is_older(&other.denial) => oldest = way,
            _ => {}
        }
    }
    oldest
}
