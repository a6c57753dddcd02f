//! The source of time, and the clocks of tests.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

/// The source of time of an embedded store.
///
/// A clock must not run backward. If one does, a charge is decided at the time of the last charge to
/// its key, so that no unit comes back early. If that charge is ahead by more than its window, the clock
/// has been set back, and all units that the key has spent count as charged now.
/// A clock of your own, such as the clock of a simulation:
///
/// ```
/// use std::sync::{
///     Arc,
///     atomic::{AtomicU64, Ordering},
/// };
///
/// use plimsoll::{Limiter, MemoryStore, Policy, clock::{Clock, Timestamp}, memory::MemoryConfig};
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

/// Returns the wall time of the operating system, for dates that another machine has written.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub(crate) fn wall_time() -> SystemTime {
    SystemTime::now()
}

/// Returns a duration in whole nanoseconds, at most [`u64::MAX`].
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a duration in whole microseconds, at most [`u64::MAX`].
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Returns a wait in microseconds, rounded up so that a client that waits is never too early. It is at most
/// [`Timestamp::MAX`].
pub(crate) fn micros_up(wait: Duration) -> u64 {
    let micros = u64::from(wait.subsec_nanos().div_ceil(1_000));
    wait.as_secs().saturating_mul(1_000_000).saturating_add(micros).min(Timestamp::MAX.0)
}

/// A point in time: whole microseconds since the Unix epoch, below 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The latest timestamp.
    pub(crate) const MAX: Self = Self((1 << 53) - 1);

    /// Creates the timestamp `micros` microseconds after the Unix epoch, at most 2^53 - 1, which is in
    /// the year 2255.
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

/// A clock for tests. It stands still until [`advance`](Self::advance) or [`set`](Self::set) moves it,
/// and clones share one time.
///
/// ```
/// use std::time::Duration;
/// use plimsoll::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::at(1_000_000);
/// clock.advance(Duration::from_millis(250));
/// assert_eq!(clock.now().as_micros(), 1_250_000);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock that shows `micros` microseconds since the Unix epoch.
    #[must_use]
    pub fn at(micros: u64) -> Self {
        Self(Arc::new(AtomicU64::new(micros)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros(by), Ordering::SeqCst);
    }

    /// Sets the clock to `micros` microseconds since the Unix epoch. The time may be earlier than before,
    /// to test a faulty clock.
    pub fn set(&self, micros: u64) {
        self.0.store(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// A clock that follows tokio's time, for tests that pause it: `#[tokio::test(start_paused = true)]`.
///
/// While the time of a runtime is paused, [`tokio::time::advance`] moves this clock together with all
/// timers of the application. The runtime also moves both when all tasks sleep, so units come back
/// without real waiting. While the time is not paused, the clock runs like the monotonic clock of the
/// operating system.
///
/// Each tokio runtime has a time of its own. So create the clock inside of the test, and check charges
/// in tasks of the same runtime.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use plimsoll::{Limiter, MemoryStore, Policy, Quota, clock::TokioClock, memory::MemoryConfig};
///
/// # tokio::runtime::Builder::new_current_thread()
/// #     .enable_time().start_paused(true).build().unwrap().block_on(async {
/// // In a function with #[tokio::test(start_paused = true)]:
/// let store = MemoryStore::new(MemoryConfig::default().clock(TokioClock::new()));
/// let limiter = Limiter::new(store);
/// let logins = Policy::new("logins", Quota::per_minute(1))?;
///
/// assert!(limiter.check(logins.charge("alice", 1)).await?.is_allowed());
/// assert!(!limiter.check(logins.charge("alice", 1)).await?.is_allowed());
/// tokio::time::advance(Duration::from_secs(60)).await;
/// assert!(limiter.check(logins.charge("alice", 1)).await?.is_allowed());
/// # Ok::<(), plimsoll::Error>(())
/// # }).unwrap();
/// ```
///
/// [`tokio::time::advance`]: https://docs.rs/tokio/latest/tokio/time/fn.advance.html
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    origin: Instant,
    /// The time that the clock shows at the origin.
    origin_micros: u64,
}

impl TokioClock {
    /// Creates a clock that agrees with wall time now.
    #[must_use]
    pub fn new() -> Self {
        Self::at(micros(wall_time().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }

    /// Creates a clock that shows `micros` microseconds since the Unix epoch now.
    ///
    /// The edges of a [`FixedWindow`](crate::Algorithm::FixedWindow) are then the same in each run of
    /// a test.
    #[must_use]
    pub fn at(micros: u64) -> Self {
        Self { origin: Instant::now(), origin_micros: micros }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        // The time of another runtime may be behind the time of the origin.
        let elapsed = Instant::now().saturating_duration_since(self.origin);
        Timestamp::from_micros(self.origin_micros.saturating_add(micros(elapsed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_and_end() {
        let nano = Duration::from_nanos(1);
        let waits = [Duration::ZERO, nano, 1_000 * nano, 1_001 * nano, Duration::MAX];
        assert_eq!(waits.map(micros_up), [0, 1, 1, 2, (1 << 53) - 1]);
    }
}
