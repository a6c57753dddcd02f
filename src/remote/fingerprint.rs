//! The fingerprint of a policy and a key, by which the stages find what they keep of a charge.

use std::hash::{BuildHasher, RandomState};

use smallvec::SmallVec;

use crate::policy::Charge;

/// The hash of a policy and a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(pub(super) u64, pub(super) u64);

pub(super) type Fingerprints = SmallVec<[Fingerprint; 2]>;

/// The secret of the hash. It is random, so that clients cannot choose keys that collide.
pub(super) struct FingerprintSecret(u64, u64);

impl FingerprintSecret {
    /// Creates a random secret.
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        Self(random.hash_one(1), random.hash_one(2))
    }

    /// Returns the fingerprint of the charge. Clients choose keys but not policies, so only the key
    /// is hashed, with the policy in the hasher's secret.
    pub(super) fn fingerprint(&self, charge: &Charge<'_>) -> Fingerprint {
        let Self(low, high) = *self;
        let [low, high] = charge.key().digest_keyed([low ^ charge.policy().id(), high]);
        Fingerprint(low, high)
    }
}

impl std::fmt::Debug for FingerprintSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FingerprintSecret")
    }
}
