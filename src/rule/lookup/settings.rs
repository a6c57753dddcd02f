//! The settings of a lookup.

use std::time::Duration;

use crate::rule::by::ClientIp;

/// The settings of a [`Lookup`](super::Lookup).
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// The number of rows that the cache holds, and the number of keys without a row.
    pub(super) max_entries: usize,
    /// The age up to which a row is used.
    pub(super) time_to_live: Duration,
    /// The time for which a key is known to have no row.
    pub(super) unknown_for: Duration,
    /// The time beyond `time_to_live` for which a row is used if it cannot be loaded.
    pub(super) max_stale: Duration,
    /// The longest time that a load takes, and that a request waits for it.
    pub(super) deadline: Duration,
    /// The number of loads that run at once.
    pub(super) max_loads: usize,
    /// The length in bytes up to which a key is looked up.
    pub(super) max_key_len: usize,
    /// The source of the address by which loads take turns.
    pub(super) client: ClientIp,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_entries: 10_000,
            time_to_live: Duration::from_secs(60),
            unknown_for: Duration::from_secs(10),
            max_stale: Duration::from_secs(300),
            deadline: Duration::from_millis(200),
            max_loads: 32,
            max_key_len: 256,
            client: ClientIp::peer(),
        }
    }
}
