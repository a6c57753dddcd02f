//! Time: the timestamp type, and the clock of embedded stores.

mod system;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

pub use self::system::SystemClock;
pub(crate) use self::system::wall_time;

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

/// The source of time of an embedded store.
///
/// A clock must not run backward. If one does, a charge is decided at the time of the last charge to
/// its key, so that no unit comes back early. If that charge is ahead by more than its window, the clock
/// has been set back, and what the key has spent counts as charged now.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// A clock for tests. It stands still until [`advance`](Self::advance) or [`set`](Self::set) moves it,
/// and clones share one time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, ManualClock};
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

    /// Sets the clock to `micros` microseconds since the Unix epoch. It may run backward, to test a
    /// faulty clock.
    pub fn set(&self, micros: u64) {
        self.0.store(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
