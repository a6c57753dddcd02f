//! The source of time.

use std::{fmt, time::Duration};

/// The source of time of an embedded store.
///
/// A clock must not run backward. If one does, a charge is decided at the time of the last charge to
/// its key, so that no unit comes back early. If that charge is ahead by more than its window, the clock
/// has been set back, and all units that the key has spent count as charged now.
///
/// A clock of your own, such as that of a simulation:
///
/// ```
/// use std::sync::{
///     Arc,
///     atomic::{AtomicU64, Ordering},
/// };
///
/// use plimsoll::{Clock, Limiter, MemoryConfig, MemoryStore, Policy, Timestamp};
///
/// /// The microseconds that the simulation has reached.
/// #[derive(Debug, Clone, Default)]
/// struct Simulated(Arc<AtomicU64>);
///
/// impl Clock for Simulated {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_micros(self.0.load(Ordering::Relaxed))
///     }
/// }
///
/// let clock = Simulated::default();
/// let limiter = Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock.clone())));
/// let policy = Policy::new("orders", "1/min")?;
/// assert!(limiter.check_now(policy.charge("alice", 1))?.is_allowed());
/// assert!(!limiter.check_now(policy.charge("alice", 1))?.is_allowed());
/// clock.0.fetch_add(60_000_000, Ordering::Relaxed);
/// assert!(limiter.check_now(policy.charge("alice", 1))?.is_allowed());
/// # Ok::<(), plimsoll::Error>(())
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// Returns a duration in whole nanoseconds, at most [`u64::MAX`].
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a duration in whole microseconds, at most [`u64::MAX`].
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A point in time: whole microseconds since the Unix epoch, below 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The latest timestamp: 2^53 - 1 microseconds, in the year 2255.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Creates the timestamp `micros` microseconds after the Unix epoch, at most [`MAX`](Self::MAX).
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// Returns the microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}
