//! A cache of denials, so that a key that is over its limit costs the store nothing.
//!
//! The cache keeps the store's last reply about each key that it denied, for at most one second. A
//! check is denied without the store if one of its charges is known to be refused. For the keys that
//! have an entry, that denial is the one that the store would give, with the same waits. If an entry
//! does not imply the reply exactly, the store is asked.
//!
//! An entry follows from the history of this process alone: whatever this process spends, refunds or
//! resets voids the entry of the key, and also a reply that is still on its way.

mod cache;
mod cached_denial;
mod table;

pub(super) use self::cache::{DenyCache, Watch};
