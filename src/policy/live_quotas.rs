//! The quotas of a policy that are in force: its own, and the quotas of single keys, which replace it for a
//! time.

use std::{
    array,
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::SystemTime,
};

use arc_swap::ArcSwap;
use hashbrown::HashTable;

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
pub struct KeyQuota {
    /// The key.
    pub key: Key,
    /// The quota of the key.
    pub quota: Quota,
    /// The time at which the quota ends.
    pub until: SystemTime,
}

/// The quotas of a policy. Charges read them without a lock. A change replaces all of them, and copies the
/// table of the keys for it.
pub(super) struct LiveQuotas {
    in_force: ArcSwap<InForce>,
    /// The quotas of keys, with their ends by the clock of the table. Held during each change.
    by_key: Mutex<BTreeMap<Key, (KeyQuota, u64)>>,
}

/// The quotas at one time.
#[derive(Clone)]
struct InForce {
    quota: Quota,
    version: u64,
    /// `None` if no key has a quota of its own.
    of_keys: Option<Arc<KeyTable>>,
}

/// A table from keys to quotas, each with an end. `benches/check.rs` (key quotas) shows the cost of a search.
#[derive(Clone)]
struct KeyTable {
    secret: KeySecret,
    clock: SystemClock,
    lines: HashTable<KeyLine>,
}

#[derive(Clone, Copy)]
struct KeyLine {
    digest: KeyDigest,
    quota: Quota,
    end: u64,
}

impl LiveQuotas {
    /// The maximum number of keys.
    pub(super) const MAX_KEYS: usize = 10_000;

    pub(super) fn new(quota: Quota) -> Self {
        let in_force = InForce { quota, version: 0, of_keys: None };
        Self { in_force: ArcSwap::from_pointee(in_force), by_key: Mutex::default() }
    }

    /// Returns a copy, which later changes do not change.
    pub(super) fn copy(&self) -> Self {
        let by_key = self.by_key.lock();
        let in_force = InForce { version: 0, ..self.in_force() };
        Self { in_force: ArcSwap::from_pointee(in_force), by_key: Mutex::new(by_key.clone()) }
    }

    /// Returns the quota of the policy.
    #[inline]
    pub(super) fn quota(&self) -> Quota {
        self.in_force.load().quota
    }

    /// Returns the number of changes of the quota of the policy.
    pub(super) fn version(&self) -> u64 {
        self.in_force.load().version
    }

    /// Returns the quota of the policy, and the quota of a key if it has one.
    #[inline]
    pub(super) fn of(&self, key: &Key) -> (Quota, Option<Quota>) {
        let in_force = self.in_force.load();
        (in_force.quota, in_force.of_keys.as_ref().and_then(|of_keys| of_keys.find(key)))
    }

    /// Replaces the quota of the policy.
    pub(super) fn set(&self, quota: Quota) {
        let _changes = self.by_key.lock();
        let InForce { version, of_keys, .. } = self.in_force();
        self.in_force.store(Arc::new(InForce { quota, version: version + 1, of_keys }));
    }

    /// Sets the quota of a key, or ends it if its time has passed.
    pub(super) fn set_key(&self, new: KeyQuota) -> Result<(), Error> {
        let left = micros(new.until.duration_since(wall_time()).unwrap_or_default());
        if left == 0 {
            self.remove_key(&new.key);
            return Ok(());
        }
        let mut by_key = self.by_key.lock();
        let in_force = self.in_force();
        let mut of_keys = match &in_force.of_keys {
            Some(of_keys) => KeyTable::clone(of_keys),
            None => KeyTable::new(),
        };
        if by_key.len() >= Self::MAX_KEYS && !by_key.contains_key(&new.key) {
            let now = of_keys.now();
            by_key.retain(|_, (_, end)| now < *end);
            of_keys.lines.retain(|line| now < line.end);
            if by_key.len() >= Self::MAX_KEYS {
                return Err(too_many());
            }
        }
        let end = of_keys.now().saturating_add(left);
        by_key.insert(new.key, (new, end));
        of_keys.set(&new, end);
        self.in_force.store(Arc::new(InForce { of_keys: Some(Arc::new(of_keys)), ..in_force }));
        Ok(())
    }

    /// Removes the quota of a key. Returns whether it was in force.
    pub(super) fn remove_key(&self, key: &Key) -> bool {
        let mut by_key = self.by_key.lock();
        let in_force = self.in_force();
        let (Some(of_keys), Some((_, end))) = (&in_force.of_keys, by_key.remove(key)) else {
            return false;
        };
        let now = of_keys.now();
        let left = (!by_key.is_empty()).then(|| {
            let mut left = KeyTable::clone(of_keys);
            left.remove(key);
            Arc::new(left)
        });
        self.in_force.store(Arc::new(InForce { of_keys: left, ..in_force }));
        now < end
    }

    /// Returns the quotas of keys that are in force, in the order of the keys.
    pub(super) fn of_keys(&self) -> Vec<KeyQuota> {
        let by_key = self.by_key.lock();
        let Some(of_keys) = self.in_force().of_keys else { return Vec::new() };
        let now = of_keys.now();
        by_key.values().filter(|(_, end)| now < *end).map(|(quota, _)| *quota).collect()
    }

    fn in_force(&self) -> InForce {
        InForce::clone(&self.in_force.load())
    }
}

impl KeyTable {
    fn new() -> Self {
        Self { secret: KeySecret::random(), clock: SystemClock::new(), lines: HashTable::new() }
    }

    /// Returns the quota of a key if it has not ended.
    fn find(&self, key: &Key) -> Option<Quota> {
        let digest = self.secret.digest(key);
        let line = self.lines.find(digest.mixed(), |line| line.digest == digest)?;
        (self.now() < line.end).then_some(line.quota)
    }

    fn set(&mut self, &KeyQuota { key, quota, .. }: &KeyQuota, end: u64) {
        self.remove(&key);
        let digest = self.secret.digest(&key);
        let line = KeyLine { digest, quota, end };
        self.lines.insert_unique(digest.mixed(), line, |line| line.digest.mixed());
    }

    fn remove(&mut self, key: &Key) {
        let digest = self.secret.digest(key);
        if let Ok(line) = self.lines.find_entry(digest.mixed(), |line| line.digest == digest) {
            line.remove();
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }
}

/// The secret of the digests of one table.
#[derive(Clone)]
struct KeySecret([u64; Key::WORDS]);

/// A key, as 128 bits of a keyed hash.
///
/// The secret of the digests is random. So a client that sends other keys finds the quota of a key in the table
/// with a probability of 2^-64 for each such key and each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeyDigest([u64; 2]);

impl KeySecret {
    /// Creates a random secret.
    fn random() -> Self {
        let random = RandomState::new();
        Self(array::from_fn(|at| random.hash_one(at)))
    }

    /// Returns the digest of a key: the universal hash NH of UMAC (Black, Halevi, Krawczyk, Krovetz and
    /// Rogaway, CRYPTO '99) with words of 64 bits.
    fn digest(&self, key: &Key) -> KeyDigest {
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
    fn mixed(self) -> u64 {
        let KeyDigest([low, high]) = self;
        let product =
            u128::from(low ^ high.rotate_left(32)) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        product as u64 ^ (product >> 64) as u64
    }
}

#[cold]
fn too_many() -> Error {
    Error::invalid(
        "number of keys with a quota of their own",
        format_args!("more than {}", LiveQuotas::MAX_KEYS),
        format_args!("at most {}", LiveQuotas::MAX_KEYS),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(seed: u64) -> KeySecret {
        KeySecret(array::from_fn(|at| (seed + at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The fewest and the most hashes that fall into one of 64 parts of a table, and into one of its 128 tags.
    #[test]
    fn keys_that_differ_in_little_are_spread() {
        let keys: [fn(u64) -> Key; 4] = [
            |number| Key::from(format!("account-{number:016x}")),
            Key::from,
            |number| Key::from(("acme", number)),
            |number| Key::from("acme").tagged(number.to_le_bytes()),
        ];
        for (keys, seed) in keys.iter().flat_map(|keys| [(keys, 0), (keys, 1 << 40)]) {
            let secret = secret(seed);
            let mut parts = [0_u32; 64];
            let mut tags = [0_u32; 128];
            for number in 0..10_000 {
                let hash = secret.digest(&keys(number)).mixed();
                parts[hash as usize % 64] += 1;
                tags[(hash >> 57) as usize] += 1;
            }
            assert!(parts.iter().all(|part| (100..220).contains(part)), "{parts:?}");
            assert!(tags.iter().all(|tag| (30..180).contains(tag)), "{tags:?}");
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
