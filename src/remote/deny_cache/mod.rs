//! A cache of denials, which answers checks of keys that are over their limit without the store.
//!
//! For each key that the store denied, the cache keeps the store's last reply for at most one
//! second. If an entry shows that the store would refuse one of the charges of a check, the cache
//! denies the check, with the same waits as the store. If an entry does not imply the reply exactly, the
//! store is asked.
//!
//! If a charge of the check has a key without an entry, its wait is not known, so the store is asked too. Beyond
//! a number of such checks a second, the cache denies them without a wait.
//!
//! An entry is void as soon as this process spends, refunds or resets units of the key. A reply
//! that is in flight at that time is not kept.

mod cache;
mod table;

pub(super) use self::cache::{DenyCache, TrackedRequest};
