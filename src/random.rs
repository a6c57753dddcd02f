//! Random numbers that need not be secret.

use std::hash::{BuildHasher, RandomState};

/// Returns a random number. Each new `RandomState` hashes to other numbers.
pub(crate) fn number() -> u64 {
    RandomState::new().hash_one(())
}
