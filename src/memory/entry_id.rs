//! The name of an entry: a keyed hash of a policy, an algorithm and a key.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
};

use crate::{key::Key, policy::Charge};

/// A policy, an algorithm and a key, as 128 bits of a keyed hash.
///
/// The upper half depends on the key alone, and selects the shard. All policies of a key are in one
/// shard, so that a check of several policies for one key takes one lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryId {
    pub(super) low: u64,
    pub(super) high: u64,
}

/// The secret of the hash. It is random for each store, unless the configuration has a seed, so that
/// clients cannot choose keys that collide.
#[derive(Clone, Copy)]
pub(super) struct HashSecret([u64; 2]);

impl HashSecret {
    /// Creates a secret: a random one, or one from a seed.
    pub(super) fn new(seed: Option<u64>) -> Self {
        match seed {
            Some(seed) => Self([seed, 0]),
            None => {
                let random = RandomState::new();
                Self([random.hash_one(0), random.hash_one(1)])
            }
        }
    }

    pub(super) fn entry(self, charge: &Charge<'_>) -> EntryId {
        EntryId::new(self.hash(charge.key()), charge)
    }

    /// Returns the hash of a key, of which [`EntryId::new`] makes the entries of the key.
    pub(super) fn hash(self, key: &Key) -> [u64; 2] {
        key.digest_keyed(self.0)
    }
}

impl EntryId {
    /// Returns the entry of the key with this hash under the policy of `charge`.
    ///
    /// Clients choose keys but not policies. So the policy is mixed into the hash without a secret
    /// of its own: a client that cannot predict the hash of a key cannot predict its entries either.
    pub(super) fn new([low, high]: [u64; 2], charge: &Charge<'_>) -> Self {
        let algorithm = u64::from(charge.quota().algorithm_number());
        Self { low: low ^ charge.policy().id() ^ algorithm, high }
    }

    pub(super) fn to_u128(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    pub(super) fn from_u128(id: u128) -> Self {
        Self { low: id as u64, high: (id >> 64) as u64 }
    }
}

impl fmt::Debug for HashSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::Policy, quota::Algorithm};

    #[test]
    fn each_key_policy_and_algorithm_has_an_entry_of_its_own() {
        let secret = HashSecret::new(Some(7));
        let mut found = Vec::new();
        for name in ["a", "b", "c", "d"] {
            for algorithm in Algorithm::EACH {
                let quota = format!("9/min {algorithm}");
                let policy = Policy::new(name, quota.as_str()).unwrap();
                for key in 0..50_u64 {
                    let id = secret.entry(&policy.charge(key, 1));
                    assert_eq!(EntryId::from_u128(id.to_u128()), id);
                    found.push(id.to_u128());
                }
            }
        }
        let count = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), count);
    }

    #[test]
    fn each_bit_of_an_entry_depends_on_the_key() {
        let secret = HashSecret::new(Some(7));
        let policy = Policy::new("a", "9/min").unwrap();
        let id = |key: u64| secret.entry(&policy.charge(key, 1)).to_u128();
        let first = id(0);
        assert_eq!((1..200).fold(0, |changed, key| changed | id(key) ^ first), u128::MAX);
    }

    /// A check of several policies for one key takes one lock.
    #[test]
    fn the_entries_of_a_key_are_in_one_shard() {
        let secret = HashSecret::new(Some(7));
        let high = |name, quota, key: u64| {
            secret.entry(&Policy::new(name, quota).unwrap().charge(key, 1)).high
        };
        assert_eq!(high("a", "9/min", 1), high("b", "9/s fixed-window", 1));
        assert_ne!(high("a", "9/min", 1), high("a", "9/min", 2));
    }
}
