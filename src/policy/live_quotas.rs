//! The quotas of a policy that are in force: its own, and the quotas of single keys, which replace it for a
//! time.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
            fence,
        },
    },
    thread,
    time::SystemTime,
};

use arc_swap::ArcSwap;

use crate::{
    clock::{Clock, SystemClock, micros, wall_time},
    error::Error,
    key::Key,
    quota::Quota,
    sync::Mutex,
};

/// A quota that is [set for one key](crate::Policy::set_key_quota) of a policy.
///
/// [`Debug`](std::fmt::Debug) prints a digest of the key, as [`Key`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyQuota {
    /// The key.
    pub key: Key,
    /// The quota of the key.
    pub quota: Quota,
    /// The time at which the quota ends.
    pub until: SystemTime,
}

/// The quotas of a policy. Charges read them without a lock. A change of the quota of one key copies and replaces the
/// quotas of all keys.
pub(super) struct LiveQuotas {
    quota: QuotaCell,
    of_keys: ArcSwap<KeyLines>,
    /// False if no key has a quota. Then a charge does not search for one (`benches/check.rs`, key quotas).
    has_keys: AtomicBool,
    /// Held during each change.
    changes: Mutex<()>,
    /// The clock of the ends.
    clock: SystemClock,
}

type KeyLines = HashMap<Key, KeyLine>;

#[derive(Clone, Copy)]
struct KeyLine {
    quota: Quota,
    until: SystemTime,
    /// The microsecond of the clock from which on the quota of the policy applies again.
    end: u64,
}

impl LiveQuotas {
    /// The maximum number of keys.
    pub(super) const MAX_KEYS: usize = 10_000;

    pub(super) fn new(quota: Quota) -> Self {
        Self::with_keys(quota, KeyLines::new(), SystemClock::new())
    }

    fn with_keys(quota: Quota, of_keys: KeyLines, clock: SystemClock) -> Self {
        Self {
            quota: QuotaCell::new(quota),
            has_keys: AtomicBool::new(!of_keys.is_empty()),
            of_keys: ArcSwap::from_pointee(of_keys),
            changes: Mutex::default(),
            clock,
        }
    }

    /// Returns a copy, which later changes do not change.
    pub(super) fn copy(&self) -> Self {
        Self::with_keys(self.quota(), KeyLines::clone(&self.of_keys.load()), self.clock)
    }

    /// Returns the quota of the policy.
    pub(super) fn quota(&self) -> Quota {
        self.quota.get()
    }

    /// Returns the number of changes of the quota of the policy.
    pub(super) fn version(&self) -> u64 {
        self.quota.sequence.load(Acquire) / 2
    }

    /// Returns the quota of the policy, and the quota of a key if it has one.
    #[inline]
    pub(super) fn of(&self, key: &Key) -> (Quota, Option<Quota>) {
        let has_keys = self.has_keys.load(Acquire);
        (self.quota.get(), if has_keys { self.of_key(key) } else { None })
    }

    fn of_key(&self, key: &Key) -> Option<Quota> {
        let lines = self.of_keys.load();
        lines.get(key).filter(|line| self.now() < line.end).map(|line| line.quota)
    }

    /// Replaces the quota of the policy.
    pub(super) fn set(&self, quota: Quota) {
        let _changes = self.changes.lock();
        self.quota.set(quota);
    }

    /// Sets the quota of a key, or ends it if its time has passed.
    pub(super) fn set_key(&self, key: Key, quota: Quota, until: SystemTime) -> Result<(), Error> {
        let left = micros(until.duration_since(wall_time()).unwrap_or_default());
        if left == 0 {
            self.remove_key(&key);
            return Ok(());
        }
        let _changes = self.changes.lock();
        let now = self.now();
        let mut lines = KeyLines::clone(&self.of_keys.load());
        lines.retain(|_, line| now < line.end);
        lines.insert(key, KeyLine { quota, until, end: now.saturating_add(left) });
        if lines.len() > Self::MAX_KEYS {
            return Err(Error::invalid(
                "number of keys with a quota of their own",
                format_args!("more than {}", Self::MAX_KEYS),
                format_args!("at most {}", Self::MAX_KEYS),
            ));
        }
        self.replace_keys(lines);
        Ok(())
    }

    /// Removes the quota of a key. Returns whether it was in force.
    pub(super) fn remove_key(&self, key: &Key) -> bool {
        let _changes = self.changes.lock();
        let Some(line) = self.of_keys.load().get(key).copied() else { return false };
        let mut lines = KeyLines::clone(&self.of_keys.load());
        lines.remove(key);
        self.replace_keys(lines);
        self.now() < line.end
    }

    /// Returns the quotas of keys that are in force, in the order of the keys.
    pub(super) fn of_keys(&self) -> Vec<KeyQuota> {
        let now = self.now();
        let lines = self.of_keys.load();
        let lines = lines.iter().filter(|(_, line)| now < line.end);
        let mut quotas: Vec<_> = lines
            .map(|(&key, &KeyLine { quota, until, .. })| KeyQuota { key, quota, until })
            .collect();
        quotas.sort_unstable_by_key(|quota| quota.key);
        quotas
    }

    fn replace_keys(&self, lines: KeyLines) {
        let has_keys = !lines.is_empty();
        self.of_keys.store(Arc::new(lines));
        self.has_keys.store(has_keys, Release);
    }

    fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }
}

/// A quota that threads read without a write to shared memory, as the two of an [`ArcSwap`] are
/// (`benches/check.rs`, one charge): a sequence lock (Boehm, "Can seqlocks get along with programming language memory
/// models?", 2012).
struct QuotaCell {
    /// Twice the number of changes. It is odd during a change.
    sequence: AtomicU64,
    words: [AtomicU64; 3],
}

impl QuotaCell {
    fn new(quota: Quota) -> Self {
        Self { sequence: AtomicU64::new(0), words: quota.into_words().map(AtomicU64::new) }
    }

    #[inline]
    fn get(&self) -> Quota {
        loop {
            let sequence = self.sequence.load(Acquire);
            let words = self.words.each_ref().map(|word| word.load(Relaxed));
            fence(Acquire);
            if sequence.is_multiple_of(2) && self.sequence.load(Relaxed) == sequence {
                return Quota::from_words(words);
            }
            thread::yield_now();
        }
    }

    /// Replaces the quota. Two changes at one time are not allowed.
    fn set(&self, quota: Quota) {
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence + 1, Relaxed);
        fence(Release);
        for (word, value) in self.words.iter().zip(quota.into_words()) {
            word.store(value, Relaxed);
        }
        self.sequence.store(sequence + 2, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit and window of each quota are equal numbers, so that a mixture of two would show.
    #[test]
    fn a_quota_that_is_read_during_changes_is_whole() {
        let quota = |millis: u64| format!("{millis}/{millis}ms").parse::<Quota>().expect("valid");
        let quotas = LiveQuotas::new(quota(1));
        let mut seen = 0;
        thread::scope(|scope| {
            let writer = scope.spawn(|| (2..200_000).for_each(|millis| quotas.set(quota(millis))));
            let mut last = 1;
            while !writer.is_finished() {
                let read = quotas.quota();
                assert_eq!(u128::from(read.limit()), read.window().as_millis());
                assert!(read.limit() >= last, "changes are seen in their order");
                seen += u64::from(read.limit() > last);
                last = read.limit();
            }
        });
        assert!(seen > 1, "the quota was read between changes");
        assert_eq!((quotas.version(), quotas.quota()), (199_998, quota(199_999)));
    }
}
