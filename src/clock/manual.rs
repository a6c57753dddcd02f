//! A clock that tests move by hand.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{Clock, Timestamp, micros};

/// A clock for tests. It stands still until [`advance`](Self::advance) or [`set`](Self::set) moves it,
/// and clones share one time.
///
/// ```
/// use std::time::Duration;
/// use plimsoll::{Clock, ManualClock};
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
