//! A clock that follows tokio's time.

use std::time::UNIX_EPOCH;

use tokio::time::Instant;

use super::{Clock, Timestamp, micros, wall_time};

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
/// use plimsoll::{Limiter, MemoryConfig, MemoryStore, Policy, Quota, TokioClock};
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
        // The time of another runtime may be behind that of the origin.
        let elapsed = Instant::now().saturating_duration_since(self.origin);
        Timestamp::from_micros(self.origin_micros.saturating_add(micros(elapsed)))
    }
}
