//! A hash table from keys to quotas that is read without a lock.

use std::{
    array,
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{key::Key, quota::Quota};

/// A table from the digests of keys to quotas, each with an end.
///
/// Only atomics are read and written, one at a time. A [`SeqLock`](super::seq_lock::SeqLock) around the
/// table makes them consistent. `benches/check.rs` (key quotas) shows the cost of a search.
#[derive(Debug)]
pub(super) struct KeyTable {
    /// A word for each group of eight slots, with a byte for each: a part of the digest of its key, and 0
    /// in an empty slot. Most searches end with one word, and those for keys without a quota look at
    /// no slot.
    groups: Box<[AtomicU64]>,
    slots: Box<[Slot]>,
}

/// The number of slots in a group.
const GROUP: usize = 8;

/// The digest of a key, its quota, and the end of the quota in microseconds, in one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    digest: [AtomicU64; 2],
    quota: [AtomicU64; Quota::WORDS],
    end: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// The secret of the digests of one policy.
#[derive(Debug)]
pub(super) struct KeySecret([u64; Key::WORDS]);

/// A key, as 128 bits of a keyed hash.
///
/// The secret of the digests is random. So a client that sends other keys finds the quota of a key in the table
/// with a probability of 2^-64 for each such key and each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyDigest([u64; 2]);

impl KeySecret {
    /// Creates a random secret.
    pub(super) fn random() -> Self {
        let random = RandomState::new();
        Self(array::from_fn(|at| random.hash_one(at)))
    }

    /// Returns the digest of a key: the universal hash NH of UMAC (Black, Halevi, Krawczyk, Krovetz and
    /// Rogaway, CRYPTO '99) with words of 64 bits.
    #[inline(always)]
    pub(super) fn digest(&self, key: &Key) -> KeyDigest {
        let words = key.as_words();
        let mut sum = 0_u128;
        for pair in 0..Key::WORDS / 2 {
            let sum_of = |at: usize| u128::from(words[at].wrapping_add(self.0[at]));
            sum = sum.wrapping_add(sum_of(2 * pair) * sum_of(2 * pair + 1));
        }
        KeyDigest([sum as u64, (sum >> 64) as u64])
    }
}

impl KeyDigest {
    /// Returns 64 bits that differ for keys that differ in little.
    #[inline(always)]
    fn mixed(self) -> u64 {
        let KeyDigest([low, high]) = self;
        let product =
            u128::from(low ^ high.rotate_left(32)) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        product as u64 ^ (product >> 64) as u64
    }
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
    pub(super) fn find(&self, digest: KeyDigest) -> Option<(Quota, u64)> {
        let hash = digest.mixed();
        for group in self.groups_from(hash) {
            let tags = self.groups[group].load(Relaxed);
            if let Some(Slot { quota, end, .. }) = self.slot_in(group, tags, hash, digest) {
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
    pub(super) fn set(&self, digest: KeyDigest, quota: Quota, end: u64) -> bool {
        let hash = digest.mixed();
        for group in self.groups_from(hash) {
            let tags = self.groups[group].load(Relaxed);
            if let Some(slot) = self.slot_in(group, tags, hash, digest) {
                slot.fill(digest, quota, end);
                return false;
            }
            // Only the lowest mark is certain.
            if let empty @ 0..GROUP = zero_bytes(tags).trailing_zeros() as usize / 8 {
                self.groups[group].store(tags | u64::from(tag(hash)) << (8 * empty), Relaxed);
                self.slots[group * GROUP + empty].fill(digest, quota, end);
                return true;
            }
        }
        false
    }

    /// Returns the slot of a key, if it is in the group that has these tags.
    #[inline]
    fn slot_in(&self, group: usize, tags: u64, hash: u64, digest: KeyDigest) -> Option<&Slot> {
        let mut marks = zero_bytes(tags ^ (u64::from(tag(hash)) * LOWEST_BITS));
        while marks != 0 {
            let slot = &self.slots[group * GROUP + marks.trailing_zeros() as usize / 8];
            if slot.is_of(digest) {
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
    fn is_of(&self, KeyDigest([low, high]): KeyDigest) -> bool {
        self.digest[0].load(Relaxed) == low && self.digest[1].load(Relaxed) == high
    }

    fn fill(&self, KeyDigest(digest): KeyDigest, quota: Quota, end: u64) {
        let store = |(word, new): (&AtomicU64, u64)| word.store(new, Relaxed);
        self.digest.iter().zip(digest).for_each(store);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(seed: u64) -> KeySecret {
        KeySecret(array::from_fn(|at| (seed + at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn key(number: u64) -> Key {
        Key::from(format!("account-{number:016x}"))
    }

    #[test]
    fn finds_each_key_in_a_table_that_is_full() {
        let table = KeyTable::new(64);
        let secret = KeySecret::random();
        let digest = |number| secret.digest(&key(number));
        let quota = |number| Quota::per_minute(1 + number);
        for number in 0..64 {
            assert!(table.set(digest(number), quota(number), number));
            assert!(!table.set(digest(number), quota(number), number), "the same slot");
        }
        assert!(!table.set(digest(64), quota(64), 1), "no slot is empty");
        for number in 0..64 {
            assert_eq!(table.find(digest(number)), Some((quota(number), number)));
        }
        assert_eq!(table.find(digest(64)), None);
        table.clear();
        assert_eq!(table.find(digest(1)), None);
    }

    /// The fewest and the most hashes that fall into one of 64 parts of a table.
    #[test]
    fn keys_that_differ_in_little_are_spread() {
        let keys: [fn(u64) -> Key; 4] = [
            key,
            Key::from,
            |number| Key::from(("acme", number)),
            |number| Key::from("acme").tagged(number.to_le_bytes()),
        ];
        for (keys, seed) in keys.iter().flat_map(|keys| [(keys, 0), (keys, 1 << 40)]) {
            let secret = secret(seed);
            let mut parts = [0_u32; 64];
            let mut tags = [0_u32; 256];
            for number in 0..10_000 {
                let hash = secret.digest(&keys(number)).mixed();
                parts[hash as usize % 64] += 1;
                tags[usize::from(tag(hash))] += 1;
            }
            assert!(parts.iter().all(|part| (100..220).contains(part)), "{parts:?}");
            assert!(tags[1..].iter().all(|tag| (10..130).contains(tag)), "{tags:?}");
        }
    }

    /// Each byte of a key, its length, its kind and its tag are in the digest.
    #[test]
    fn different_keys_have_different_digests() {
        let long: Vec<u8> = (1..=Key::MAX_PLAIN_BYTES as u8).collect();
        let mut keys: Vec<Key> = (0..=long.len()).map(|len| Key::new(&long[..len])).collect();
        for at in 0..long.len() {
            for bit in 0..8 {
                let mut bytes = long.clone();
                bytes[at] ^= 1 << bit;
                keys.push(Key::new(&bytes));
            }
        }
        keys.extend([Key::ANONYMOUS, Key::from(1), Key::from("1"), Key::from("1").tagged("a")]);
        keys.sort();
        keys.dedup();
        let secret = KeySecret::random();
        let mut digests: Vec<_> = keys.iter().map(|key| secret.digest(key).0).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), keys.len());
    }
}
