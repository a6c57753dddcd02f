//! A table of fixed size that finds the keys with demand.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{super::fingerprint::Fingerprint, demand::MIN_CHECKS};

/// The recent checks of keys that are not leased. A key costs no more than one slot, and a key that
/// comes to the slot of another one replaces it.
///
/// A slot has a part of the fingerprint (24 bits), a number of checks (8 bits), and the time of the
/// first of them (32 bits, in microseconds). If two threads write a slot at the same time, a check may
/// not be counted.
#[derive(Debug)]
pub(super) struct Candidates(Box<[AtomicU64]>);

/// The number of slots: 128 KiB of them.
const SLOTS: usize = 1 << 14;

/// The number of checks within a refresh time from which on the demand of a key is measured: one more
/// than a [leased](MIN_CHECKS) key has on average.
pub(super) const BUSY_CHECKS: u64 = MIN_CHECKS + 1;

impl Candidates {
    pub(super) fn new() -> Self {
        Self((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Counts a check of a key. Returns whether the key is busy.
    pub(super) fn observe(&self, fingerprint: Fingerprint, now: u64, refresh: u64) -> bool {
        let Fingerprint(low, high) = fingerprint;
        let slot = &self.0[low as usize % SLOTS];
        let (tag, now) = (high >> 40, now as u32);
        let old = slot.load(Relaxed);
        let (old_tag, checks, start) = (old >> 40, old >> 32 & 0xff, old as u32);
        let is_same = tag == old_tag && u64::from(now.wrapping_sub(start)) <= refresh;
        let (checks, start) = if is_same { (checks + 1, start) } else { (1, now) };
        let is_busy = checks >= BUSY_CHECKS;
        let new = if is_busy { 0 } else { tag << 40 | checks << 32 | u64::from(start) };
        slot.store(new, Relaxed);
        is_busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_busy_after_four_more_checks_within_the_refresh_time() {
        let candidates = Candidates::new();
        let key = Fingerprint(5, 7 << 40);
        for (now, is_busy) in [
            (0, false),
            (50, false),
            (101, false),
            (120, false),
            (150, false),
            (160, false),
            (201, true),
        ] {
            assert_eq!(candidates.observe(key, now, 100), is_busy, "at {now}");
        }
        assert!(!candidates.observe(key, 202, 100), "counted anew");
    }

    #[test]
    fn keys_of_one_slot_do_not_count_for_each_other() {
        let candidates = Candidates::new();
        let keys = [7, 8].map(|tag| Fingerprint(5, tag << 40));
        assert!((0..10).all(|now| keys.iter().all(|key| !candidates.observe(*key, now, 100))));
    }
}
