//! The settings of a lookup, and one load of a row: its result, the reasons why it fails, and its place in the queue.

use std::{error::Error as StdError, pin::Pin, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::watch, time::Instant};

use crate::{rule::by::ClientIp, telemetry};

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

/// Returns the future of a load: the row of a key, `None` if there is none, or an error.
pub(super) type LoadFn<Q, T> = dyn Fn(Q) -> LoadFuture<T> + Send + Sync;
pub(super) type LoadFuture<T> =
    Pin<Box<dyn Future<Output = Result<Option<T>, Box<dyn StdError + Send + Sync>>> + Send>>;

/// The result of a load. Each request that waits for it gets a clone.
pub(super) type Loaded<T> = Result<Option<Arc<T>>, LoadFailure>;

/// The reason why a row could not be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadFailure {
    /// The load returned an error.
    Error,
    /// The load did not end by the deadline.
    TimedOut,
    /// The load panicked.
    Panicked,
    /// The runtime of the load has ended, or there is no tokio runtime with timers.
    Interrupted,
    /// Too many loads were waiting for the load to end by its deadline, so it was not started.
    Overloaded,
}

impl LoadFailure {
    /// Returns the name of the failure in events and metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::TimedOut => "timed_out",
            Self::Panicked => "panicked",
            Self::Interrupted => "interrupted",
            Self::Overloaded => "overloaded",
        }
    }
}

/// The progress of a load, for the requests that wait for it.
pub(super) enum LoadProgress<T> {
    /// The load waits for its turn.
    Waiting,
    Running,
    Ended(Loaded<T>),
}

impl<T> LoadProgress<T> {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting)
    }

    /// Returns the result, if the load has ended.
    pub(super) fn result(&self) -> Option<&Loaded<T>> {
        if let Self::Ended(loaded) = self { Some(loaded) } else { None }
    }
}

/// A load that was not started yet.
pub(super) struct NewLoad<Q, T> {
    pub(super) key: Q,
    /// A number that no other load of the lookup has.
    pub(super) number: u64,
    pub(super) created: Instant,
    /// The runtime of the request that caused the load.
    pub(super) runtime: Handle,
    pub(super) progress: watch::Sender<LoadProgress<T>>,
}

impl<Q, T> NewLoad<Q, T> {
    /// Ends the load without a start.
    pub(super) fn refuse(self) {
        telemetry::lookup_failed(LoadFailure::Overloaded.name(), None);
        self.progress.send_replace(LoadProgress::Ended(Err(LoadFailure::Overloaded)));
    }
}
