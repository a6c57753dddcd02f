//! Random numbers that need not be secret.

use std::hash::{BuildHasher, RandomState};

/// A fresh `RandomState` hashes anything to a random number.
pub(crate) fn number() -> u64 {
    RandomState::new().hash_one(())
}
