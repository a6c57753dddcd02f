//! A table of bounded size, with the last denial of each key and the number of changes of the key
//! by this process.
//!
//! A denial is a standing that the store reported. While no units are spent or refunded, each wait ends at a
//! fixed time. One reply therefore implies the next ones exactly, until the next unit returns. If a reply is
//! not implied exactly, the store is asked.

use std::{
    sync::{
        MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::super::fingerprint::{Fingerprint, FingerprintSecret};
use crate::{
    clock::micros_up,
    decision::{ChargeReply, Standing},
    policy::Charge,
    quota::Quota,
    sync::Mutex,
};

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
    pub(super) fn fingerprint(&self, charge: &Charge<'_>) -> Fingerprint {
        self.secret.fingerprint(charge)
    }

    /// Returns the entry of a key under a quota, if it is fresh at `now` and the key has changed no
    /// more than `changes` times.
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
        let same = set
            .iter()
            .position(|way| way.as_ref().is_some_and(|entry| entry.is_of(fingerprint, &quota)));
        let way = same.unwrap_or_else(|| oldest(&set));
        set[way] = Some(CacheEntry { fingerprint, quota, changes, denial });
    }

    /// Returns the number of changes of the key by this process.
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

/// The time for which an entry is used, in microseconds. It bounds the time for which a change by
/// another process stays unseen.
const MAX_AGE_MICROS: u64 = 1_000_000;
/// The time for which an entry of a concurrency limit is used. Other processes release units at any time.
const MAX_AGE_IN_FLIGHT_MICROS: u64 = 50_000;

/// The standing of one key under one quota, as the store reported it.
///
/// All times are in microseconds of this process's clock. The store decided the request between the
/// time at which it was sent and the time at which the reply arrived:
///
/// - A unit counts as returned from the earlier time on. So the cache denies no check that the store
///   would admit.
/// - The waits in a reply end at the later time. So a client that waits that long is not too early.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachedDenial {
    asked_at: u64,
    /// The time between the request and its reply.
    latency: u64,
    /// The time in the store's reply, by the clock of the store.
    store_time: u64,
    /// The capacity by which the store counts.
    limit: u64,
    remaining: u64,
    next_at: u64,
    reset_at: u64,
    /// The cost that the store refused, if it refused one.
    refused: Option<Refused>,
}

/// A cost that the store refused, and the time at which that many units are free.
#[derive(Debug, Clone, Copy)]
struct Refused {
    cost: u64,
    free_at: u64,
}

impl CachedDenial {
    /// Creates the entry for a reply to a charge of `cost`. Returns `None` if the reply contradicts
    /// itself or the quota.
    pub(super) fn new(
        quota: &Quota,
        cost: u64,
        standing: &Standing,
        (asked_at, latency): (u64, u64),
        store_time: u64,
    ) -> Option<Self> {
        let Standing { limit, remaining, .. } = *standing;
        let next_after = micros_up(standing.next_after);
        let reset_after = micros_up(standing.reset_after);
        let full = remaining == limit;
        let ordered = 0 < next_after && next_after <= reset_after && remaining < limit;
        // A shared store may count a leased quota in another way.
        let capacities = [quota.capacity(), quota.counted().capacity()];
        if !capacities.contains(&limit) || !(full || ordered) {
            return None;
        }
        let refused = standing
            .retry_after
            .map(|wait| Refused { cost, free_at: asked_at.saturating_add(micros_up(wait)) });
        Some(Self {
            asked_at,
            latency,
            store_time,
            limit,
            remaining,
            next_at: asked_at.saturating_add(next_after),
            reset_at: asked_at.saturating_add(reset_after),
            refused,
        })
    }

    /// Returns whether the entry, which is about `quota`, is recent enough to be used at `now`.
    pub(super) fn is_fresh(&self, quota: &Quota, now: u64) -> bool {
        let max_age = if quota.is_concurrent() { MAX_AGE_IN_FLIGHT_MICROS } else { MAX_AGE_MICROS };
        (self.asked_at..self.asked_at.saturating_add(max_age)).contains(&now)
    }

    /// Returns whether this entry is evicted before `other`.
    pub(super) fn is_older(&self, other: &Self) -> bool {
        self.asked_at < other.asked_at
    }

    /// Returns the store's time at `now`.
    pub(super) fn store_time(&self, now: u64) -> u64 {
        self.store_time.saturating_add(now - self.asked_at)
    }

    /// Returns the store's reply at `now` to a charge of a check that is denied. Returns `None` if
    /// the entry does not imply the reply.
    pub(super) fn reply(&self, cost: u64, now: u64) -> Option<ChargeReply> {
        let Self { limit, remaining, next_at, reset_at, .. } = *self;
        if remaining >= limit || now >= reset_at {
            return Some(ChargeReply::peeked(cost, Standing::full(limit)));
        }
        if now >= next_at {
            return None;
        }
        let retry_after = if cost > remaining && cost <= limit {
            Some(self.wait(self.free_at(cost)?.min(reset_at).max(next_at), now))
        } else {
            None
        };
        let next_after = self.wait(next_at, now);
        let reset_after = self.wait(reset_at, now);
        let standing = Standing { limit, remaining, next_after, reset_after, retry_after };
        Some(ChargeReply::peeked(cost, standing))
    }

    /// Returns the wait at `now` until units return that the entry expects at `at`. The wait includes
    /// the latency of the reply, because the store may return them that much later.
    fn wait(&self, at: u64, now: u64) -> Duration {
        Duration::from_micros((at - now).saturating_add(self.latency))
    }

    /// Returns the time at which `cost` units are free, which is more than remain. Returns `None` if the entry
    /// does not imply it.
    fn free_at(&self, cost: u64) -> Option<u64> {
        // A higher cost is never free earlier than a lower one. So if two costs are free at the
        // same time, all costs between them are free at that time as well.
        let mut low = (self.remaining + 1, self.next_at);
        let mut high = (self.limit, self.reset_at);
        if let Some(Refused { cost: known, free_at }) = self.refused {
            if (low.0..=cost).contains(&known) {
                low = (known, free_at);
            } else if (cost..high.0).contains(&known) {
                high = (known, free_at);
            }
        }
        if cost == low.0 || low.1 == high.1 {
            return Some(low.1);
        }
        (cost == high.0).then_some(high.1)
    }
}

/// Returns the reply to a charge whose key has no entry: as if the key had spent nothing.
pub(super) fn unknown(quota: &Quota, cost: u64) -> ChargeReply {
    ChargeReply::peeked(cost, Standing::full(quota.capacity()))
}
