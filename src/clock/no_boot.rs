//! The clock of leases where the time of a suspension cannot be read.

use super::{Clock, SystemClock, Timestamp};

/// The monotonic clock of the operating system, for builds without the feature `redis`, and for
/// operating systems without `CLOCK_BOOTTIME`.
///
/// On some systems it stands still while the machine is suspended. A lease then lasts longer by the
/// time of a suspension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootClock(SystemClock);

impl BootClock {
    pub(crate) fn new() -> Self {
        Self(SystemClock::new())
    }
}

impl Clock for BootClock {
    #[inline]
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}
