//! The cache of rows, and of keys without a row.
//!
//! Each kind has a cache of its own, so that keys which an attacker invents evict no row. Both have
//! a capacity. They measure the age of entries with the time that the caller passes in.

use std::{hash::Hash, sync::Arc, time::Duration};

use quick_cache::sync::Cache;
use siphasher::sip128::{Hasher128, SipHasher13};
use tokio::time::Instant;

use super::load::Settings;
use crate::{random, runtime::saturating_add};

/// The time after a failed load in which the key is not loaded again.
pub(super) const FAILED_LOAD_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Rows<Q, T> {
    rows: Cache<Q, Row<T>>,
    /// The entries by the digest of the key, because a client chooses the keys and their length.
    absences: Cache<u128, Absence>,
    hasher: SipHasher13,
    time_to_live: Duration,
    unknown_for: Duration,
    max_stale: Duration,
}

struct Row<T> {
    value: Arc<T>,
    loaded_at: Instant,
    /// The time of the last load, if that load has failed.
    failed_at: Option<Instant>,
}

impl<T> Clone for Row<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), ..*self }
    }
}

/// The absence of a row, until the given time.
#[derive(Clone, Copy)]
enum Absence {
    /// The database has no row of this key.
    Unknown(Instant),
    /// The load has failed, and no earlier row is left.
    Failed(Instant),
}

/// The entry of a key at some time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cached<T> {
    /// The row is used. If `is_due`, a load begins in the background, so that the next requests find
    /// a newer row.
    Row { row: Arc<T>, is_due: bool },
    /// The row has expired, and its last load has failed. The request uses the row without a wait. If
    /// `is_due`, another load begins in the background.
    Stale { row: Arc<T>, is_due: bool },
    /// The row has expired, so the request waits for a load. If the load fails, the row is used.
    Expired { row: Arc<T> },
    /// There is no row of this key.
    Unknown,
    /// The last load has failed.
    Failed,
    /// Nothing is known, so the request waits for a load.
    Missing,
}

impl<Q: Hash + Eq + Clone, T> Rows<Q, T> {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            rows: Cache::new(settings.max_entries),
            absences: Cache::new(settings.max_entries),
            hasher: SipHasher13::new_with_keys(random::number(), random::number()),
            time_to_live: settings.time_to_live,
            unknown_for: settings.unknown_for.min(settings.time_to_live),
            max_stale: settings.max_stale,
        }
    }

    /// Returns the entry of a key.
    pub(super) fn get(&self, key: &Q, now: Instant) -> Cached<T> {
        if let Some(Row { value: row, loaded_at, failed_at }) = self.rows.get(key) {
            let age = now.saturating_duration_since(loaded_at);
            let may_retry = |failed_at: Instant| {
                now.saturating_duration_since(failed_at) >= FAILED_LOAD_INTERVAL
            };
            let is_due = failed_at.is_none_or(may_retry);
            if age < self.time_to_live {
                // Rows that are in use are loaded again before they expire, in the last quarter of
                // their time, so that no request waits for them.
                let is_late = age >= self.time_to_live / 4 * 3;
                return Cached::Row { row, is_due: is_due && is_late };
            }
            if age < self.time_to_live.saturating_add(self.max_stale) {
                return match failed_at {
                    Some(_) => Cached::Stale { row, is_due },
                    None => Cached::Expired { row },
                };
            }
            return if is_due { Cached::Missing } else { Cached::Failed };
        }
        match self.absences.get(&self.digest(key)) {
            Some(Absence::Unknown(until)) if now < until => Cached::Unknown,
            Some(Absence::Failed(until)) if now < until => Cached::Failed,
            _ => Cached::Missing,
        }
    }

    /// Stores the result of a load: a row, or that there is none.
    pub(super) fn insert(&self, key: Q, row: Option<Arc<T>>, now: Instant) {
        match row {
            Some(value) => {
                self.absences.remove(&self.digest(&key));
                self.rows.insert(key, Row { value, loaded_at: now, failed_at: None });
            }
            None => {
                self.rows.remove(&key);
                let until = saturating_add(now, self.unknown_for);
                self.absences.insert(self.digest(&key), Absence::Unknown(until));
            }
        }
    }

    /// Stores that a load has failed. An earlier row remains.
    pub(super) fn insert_failure(&self, key: Q, now: Instant) {
        match self.rows.peek(&key) {
            Some(row) => self.rows.insert(key, Row { failed_at: Some(now), ..row }),
            None => {
                self.absences
                    .insert(self.digest(&key), Absence::Failed(now + FAILED_LOAD_INTERVAL));
            }
        }
    }

    /// Removes the entry of a key.
    pub(super) fn remove(&self, key: &Q) {
        self.rows.remove(key);
        self.absences.remove(&self.digest(key));
    }

    fn digest(&self, key: &Q) -> u128 {
        let mut hasher = self.hasher;
        key.hash(&mut hasher);
        hasher.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Rows that live for 60 s, and are stale for another 300 s.
    fn rows(max_entries: usize) -> Rows<u64, u64> {
        Rows::new(&Settings { max_entries, ..Settings::default() })
    }

    fn row(row: u64, is_due: bool) -> Cached<u64> {
        Cached::Row { row: Arc::new(row), is_due }
    }

    fn stale(row: u64, is_due: bool) -> Cached<u64> {
        Cached::Stale { row: Arc::new(row), is_due }
    }

    #[test]
    fn a_row_is_due_before_it_expires() {
        let (rows, start) = (rows(10), Instant::now());
        assert_eq!(rows.get(&1, start), Cached::Missing);
        rows.insert(1, Some(Arc::new(7)), start);
        for (age, cached) in [
            (0, row(7, false)),
            (44, row(7, false)),
            (45, row(7, true)),
            (59, row(7, true)),
            (60, Cached::Expired { row: Arc::new(7) }),
            (359, Cached::Expired { row: Arc::new(7) }),
            (360, Cached::Missing),
        ] {
            assert_eq!(rows.get(&1, start + age * SECOND), cached, "after {age} s");
        }
    }

    #[test]
    fn after_a_failure_a_row_is_stale_for_a_bounded_time() {
        let (rows, start) = (rows(10), Instant::now());
        rows.insert(1, Some(Arc::new(7)), start);
        rows.insert_failure(1, start + 50 * SECOND);
        assert_eq!(rows.get(&1, start + 50 * SECOND), row(7, false));
        assert_eq!(rows.get(&1, start + 51 * SECOND), row(7, true));
        rows.insert_failure(1, start + 60 * SECOND);
        assert_eq!(rows.get(&1, start + 60 * SECOND), stale(7, false));
        assert_eq!(rows.get(&1, start + 61 * SECOND), stale(7, true));
        rows.insert_failure(1, start + 359 * SECOND + SECOND / 2);
        assert_eq!(rows.get(&1, start + 360 * SECOND), Cached::Failed);
        assert_eq!(rows.get(&1, start + 361 * SECOND), Cached::Missing);
        rows.insert(1, Some(Arc::new(8)), start + 361 * SECOND);
        assert_eq!(rows.get(&1, start + 361 * SECOND), row(8, false));
    }

    #[test]
    fn keys_without_a_row_and_failures_expire() {
        let (rows, start) = (rows(10), Instant::now());
        rows.insert(1, None, start);
        rows.insert_failure(2, start);
        assert_eq!((rows.get(&1, start), rows.get(&2, start)), (Cached::Unknown, Cached::Failed));
        let later = start + SECOND;
        assert_eq!((rows.get(&1, later), rows.get(&2, later)), (Cached::Unknown, Cached::Missing));
        assert_eq!(rows.get(&1, start + 10 * SECOND), Cached::Missing);
        // A row takes the place of an absence, and the reverse.
        rows.insert(1, Some(Arc::new(7)), start);
        assert_eq!(rows.get(&1, start), row(7, false));
        rows.insert(1, None, start);
        assert_eq!(rows.get(&1, start), Cached::Unknown);
        rows.remove(&1);
        assert_eq!(rows.get(&1, start), Cached::Missing);
    }

    #[test]
    fn a_key_without_a_row_is_not_kept() {
        let (rows, start) = (Rows::<Arc<str>, u64>::new(&Settings::default()), Instant::now());
        let invented: Arc<str> = "k".repeat(64 << 10).into();
        rows.insert(Arc::clone(&invented), None, start);
        rows.insert_failure(Arc::from("another"), start);
        assert_eq!(rows.get(&invented, start), Cached::Unknown);
        assert_eq!(rows.get(&Arc::from("another"), start), Cached::Failed);
        assert_eq!(rows.get(&Arc::from("kk"), start), Cached::Missing);
        assert_eq!(Arc::strong_count(&invented), 1);
    }

    #[test]
    fn invented_keys_evict_no_row_and_are_bounded() {
        let (rows, start) = (rows(100), Instant::now());
        let known = || 0..50_u64;
        known().for_each(|key| rows.insert(key, Some(Arc::new(key)), start));
        for key in 1_000..50_000 {
            match key % 2 {
                0 => rows.insert(key, None, start),
                _ => rows.insert_failure(key, start),
            }
        }
        assert!(known().all(|key| rows.get(&key, start) == row(key, false)));
        assert!(rows.absences.len() <= 100, "{} absences", rows.absences.len());
        for key in 1_000..50_000 {
            rows.insert(key, Some(Arc::new(key)), start);
        }
        assert!(rows.rows.len() <= 100, "{} rows", rows.rows.len());
    }
}
