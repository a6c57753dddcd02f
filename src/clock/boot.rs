//! A clock for leases, which goes on while the machine is suspended if the operating system has one.

use super::{Clock, Timestamp};

/// The time since the machine was started, with the time in which it was suspended
/// (`CLOCK_BOOTTIME`). It never steps.
///
/// [`Instant`](std::time::Instant) stands still while a machine is suspended. A lease that is measured
/// by it would last longer than the store allows.
///
/// In builds without the feature `redis`, and on operating systems without that clock, it is the
/// monotonic clock. On some systems that one stands still during a suspension, and a lease then lasts
/// longer by its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootClock(OsClock);

impl BootClock {
    pub(crate) fn new() -> Self {
        Self(OsClock::new())
    }
}

impl Clock for BootClock {
    #[inline]
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// The seam of the feature `redis`, which has the function of the operating system.
#[cfg(all(feature = "redis", any(target_os = "linux", target_os = "android")))]
mod os {
    use rustix::time::{ClockId, clock_gettime};

    use crate::clock::Timestamp;

    #[derive(Debug, Clone, Copy)]
    pub(super) struct OsClock;

    impl OsClock {
        pub(super) fn new() -> Self {
            Self
        }

        #[inline]
        pub(super) fn now(self) -> Timestamp {
            let time = clock_gettime(ClockId::Boottime);
            let (seconds, nanos) = (time.tv_sec as u64, time.tv_nsec as u64);
            Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000))
        }
    }
}

#[cfg(not(all(feature = "redis", any(target_os = "linux", target_os = "android"))))]
mod os {
    pub(super) use crate::clock::SystemClock as OsClock;
}

use os::OsClock;

#[cfg(all(test, feature = "redis", any(target_os = "linux", target_os = "android")))]
mod tests {
    use std::{fs, time::Duration};

    use super::*;

    #[test]
    fn agrees_with_the_uptime_of_the_system() {
        let before = BootClock::new().now();
        let text = fs::read_to_string("/proc/uptime").expect("Linux has it");
        let after = BootClock::new().now();
        let uptime = text.split(' ').next().and_then(|it| it.parse().ok()).expect("seconds");
        let uptime = Duration::from_secs_f64(uptime).as_micros() as u64;
        // The file is rounded to 10 ms.
        assert!((before.as_micros() - 10_001..=after.as_micros() + 10_001).contains(&uptime));
    }
}
