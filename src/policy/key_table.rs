//! A hash table from keys to quotas that is read without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{key::Key, quota::Quota};

/// A table from keys to quotas, each with an end.
///
/// Only atomics are read and written, one at a time. A [`SeqLock`](super::seq_lock::SeqLock) around the
/// table makes them consistent. `benches/check.rs` (key quotas) shows the cost of a search.
#[derive(Debug)]
pub(super) struct KeyTable {
    /// A word for each group of eight slots, with a byte for each: a part of the hash of its key, and 0
    /// in an empty slot. Most searches end with one word, and those for keys without a quota look at
    /// no slot.
    groups: Box<[AtomicU64]>,
    slots: Box<[Slot]>,
}

/// The number of slots in a group.
const GROUP: usize = 8;

/// A key, its quota, and the end of the quota in microseconds. A slot is a pair of cache lines, which
/// processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot {
    key: [AtomicU64; Key::WORDS],
    quota: [AtomicU64; Quota::WORDS],
    end: AtomicU64,
}

impl KeyTable {
    /// Creates an empty table. The number of its slots is a power of 2, and at least 8.
    pub(super) fn new(slots: usize) -> Self {
        debug_assert!(slots.is_power_of_two() && slots >= GROUP);
        let groups = (0..slots / GROUP).map(|_| AtomicU64::default()).collect();
        Self { groups, slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    /// Returns the quota of a key, and its end. If the table is being changed, the result is arbitrary.
    #[inline]
    pub(super) fn find(&self, key: &[u64; Key::WORDS]) -> Option<(Quota, u64)> {
        let hash = hash(key);
        for group in self.groups_from(hash) {
            let tags = self.groups[group].load(Relaxed);
            if let Some(Slot { quota, end, .. }) = self.slot_in(group, tags, hash, key) {
                let words = quota.each_ref().map(|word| word.load(Relaxed));
                return Some((Quota::from_words(words), end.load(Relaxed)));
            }
            if zero_bytes(tags) != 0 {
                return None;
            }
        }
        None
    }

    /// Sets the quota of a key and its end. Returns whether the key has taken an empty slot.
    pub(super) fn set(&self, key: &[u64; Key::WORDS], quota: Quota, end: u64) -> bool {
        let hash = hash(key);
        for group in self.groups_from(hash) {
            let tags = self.groups[group].load(Relaxed);
            if let Some(slot) = self.slot_in(group, tags, hash, key) {
                slot.fill(key, quota, end);
                return false;
            }
            // Only the lowest mark is certain.
            if let empty @ 0..GROUP = zero_bytes(tags).trailing_zeros() as usize / 8 {
                self.groups[group].store(tags | u64::from(tag(hash)) << (8 * empty), Relaxed);
                self.slots[group * GROUP + empty].fill(key, quota, end);
                return true;
            }
        }
        false
    }

    /// Returns the slot of a key, if it is in the group that has these tags.
    #[inline]
    fn slot_in(
        &self,
        group: usize,
        tags: u64,
        hash: u64,
        key: &[u64; Key::WORDS],
    ) -> Option<&Slot> {
        let mut marks = zero_bytes(tags ^ (u64::from(tag(hash)) * LOWEST_BITS));
        while marks != 0 {
            let slot = &self.slots[group * GROUP + marks.trailing_zeros() as usize / 8];
            if slot.is_of(key) {
                return Some(slot);
            }
            marks &= marks - 1;
        }
        None
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Removes all keys.
    pub(super) fn clear(&self) {
        self.groups.iter().for_each(|tags| tags.store(0, Relaxed));
    }

    /// Returns all groups, from the one on that a key with this hash is in if there is room.
    #[inline]
    fn groups_from(&self, hash: u64) -> impl Iterator<Item = usize> {
        let mask = self.groups.len() - 1;
        (0..=mask).map(move |step| (hash as usize).wrapping_add(step) & mask)
    }
}

impl Slot {
    #[inline]
    fn is_of(&self, key: &[u64; Key::WORDS]) -> bool {
        self.key.iter().zip(key).all(|(word, other)| word.load(Relaxed) == *other)
    }

    fn fill(&self, key: &[u64; Key::WORDS], quota: Quota, end: u64) {
        let store = |(word, new): (&AtomicU64, u64)| word.store(new, Relaxed);
        self.key.iter().zip(*key).for_each(store);
        self.quota.iter().zip(quota.to_words()).for_each(store);
        self.end.store(end, Relaxed);
    }
}

/// A word with the lowest bit of each byte.
const LOWEST_BITS: u64 = u64::MAX / 255;

/// Marks the bytes that are zero with their highest bits. A byte of 1 above a zero byte is marked too.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOWEST_BITS) & !word & LOWEST_BITS << 7
}

/// Returns the byte for a key with this hash.
#[inline]
fn tag(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

/// Returns a hash of a key. It has no secret: clients choose the keys that are looked up, but not those
/// in the table, so a client gains nothing by keys that collide.
#[inline]
fn hash(&[a, b, c, d, e, f, g]: &[u64; Key::WORDS]) -> u64 {
    let mix = |one: u64, other: u64| {
        let product =
            u128::from(one ^ 0x9e37_79b9_7f4a_7c15) * u128::from(other ^ 0xa076_1d64_78bd_642f);
        product as u64 ^ (product >> 64) as u64
    };
    let halves =
        mix(a, b.rotate_left(17) ^ g) ^ mix(c, d).rotate_left(21) ^ mix(e, f).rotate_left(42);
    mix(halves, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> [u64; Key::WORDS] {
        Key::from(format!("account-{number:016x}")).to_words()
    }

    #[test]
    fn finds_each_key_in_a_table_that_is_full() {
        let table = KeyTable::new(64);
        let quota = |number| Quota::per_minute(1 + number);
        for number in 0..64 {
            assert!(table.set(&key(number), quota(number), number));
            assert!(!table.set(&key(number), quota(number), number), "the same slot");
        }
        assert!(!table.set(&key(64), quota(64), 1), "no slot is empty");
        for number in 0..64 {
            assert_eq!(table.find(&key(number)), Some((quota(number), number)));
        }
        assert_eq!(table.find(&key(64)), None);
        table.clear();
        assert_eq!(table.find(&key(1)), None);
    }

    /// The fewest and the most hashes that fall into one of 64 parts of a table.
    #[test]
    fn keys_that_differ_in_little_are_spread() {
        let words: [fn(u64) -> [u64; Key::WORDS]; 3] = [
            key,
            |number| Key::from(number).to_words(),
            |number| Key::from(("acme", number)).to_words(),
        ];
        for words in words {
            let mut parts = [0_u32; 64];
            let mut tags = [0_u32; 256];
            for number in 0..10_000 {
                let hash = hash(&words(number));
                parts[hash as usize % 64] += 1;
                tags[usize::from(tag(hash))] += 1;
            }
            assert!(parts.iter().all(|part| (100..220).contains(part)), "{parts:?}");
            assert!(tags[1..].iter().all(|tag| (10..130).contains(tag)), "{tags:?}");
        }
    }
}
