//! Time: the timestamp type, and the clock of embedded stores.

#[cfg(all(feature = "redis", any(target_os = "linux", target_os = "android")))]
mod boot;
#[cfg(not(all(feature = "redis", any(target_os = "linux", target_os = "android"))))]
#[path = "no_boot.rs"]
mod boot;
mod manual;
mod system;
mod tokio_clock;

use std::{fmt, time::Duration};

pub(crate) use self::{boot::BootClock, system::wall_time};
pub use self::{manual::ManualClock, system::SystemClock, tokio_clock::TokioClock};

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
/// has been set back, and all units that the key has spent count as charged now.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a duration in whole microseconds, at most [`u64::MAX`].
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
