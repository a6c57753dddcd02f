//! A point in time.

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
