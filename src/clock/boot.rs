//! A clock that does not stop while the machine is suspended.

use rustix::time::{ClockId, clock_gettime};

use super::{Clock, Timestamp};

/// The time since the machine was started, with the time in which it was suspended
/// (`CLOCK_BOOTTIME`). It never steps.
///
/// [`Instant`](std::time::Instant) stands still while a machine is suspended. A lease that is measured
/// by it would last longer than the store allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootClock;

impl BootClock {
    pub(crate) fn new() -> Self {
        Self
    }
}

impl Clock for BootClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let time = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (time.tv_sec as u64, time.tv_nsec as u64);
        Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000))
    }
}

#[cfg(test)]
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
