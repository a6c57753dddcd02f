//! The clocks of the operating system: for the embedded store, and for leases.
//!
//! [`SystemClock`] is as accurate as the operating system's clock, at a third of its cost. The
//! processor's counter is quick to read, but its rate is only measured, so time that is counted by it
//! drifts. Each thread therefore reads the operating system's clock every [`RESYNC_INTERVAL_NANOS`],
//! and counts on from there.

use std::{
    cell::Cell,
    fmt,
    sync::LazyLock,
    time::{Instant, UNIX_EPOCH},
};

use super::{Clock, Timestamp, clock::nanos, wall_time};

/// The operating system's monotonic clock, anchored once to wall time.
///
/// The clock never steps. A later correction of the wall clock does not change it, so no window is
/// shortened or repeated.
///
/// Each thread reads the operating system's clock at least every millisecond. In between it counts the
/// ticks of the processor, if their rate is constant. The error is about 1 µs, and two threads may
/// differ by as much. On one thread the time never runs backward.
///
/// # Differences from wall time
///
/// Two events put the clock behind wall time or off it, for as long as the process runs:
///
/// - On Linux and macOS the monotonic clock stands still while the machine is suspended. Units come
///   back later by the time of the suspension.
/// - If the process starts before the machine has set its wall clock, by NTP for instance, the clock
///   keeps the wrong time.
///
/// No window admits more units than its bound, and waits are longer only by the time of a
/// suspension. But the edges of a [`FixedWindow`](crate::Algorithm::FixedWindow), such as midnight
/// UTC, and the timestamps of [`ResetFormat::Epoch`](crate::layer::ResetFormat::Epoch) are off by the same amount.
/// Where that matters, start the process after the wall clock is set, and restart it after a
/// suspension, or pass a [`Clock`] of your own to
/// [`MemoryConfig::clock`](crate::memory::MemoryConfig::clock). A [`RedisStore`](crate::RedisStore) uses
/// the time of the server.
#[derive(Clone, Copy)]
pub struct SystemClock {
    counter: &'static TickCounter,
    /// Wall time at the origin of the counter.
    epoch_nanos: u64,
}

impl SystemClock {
    /// Creates a clock that agrees with wall time now.
    ///
    /// The first clock of a process measures the rate of the processor's counter. This blocks the
    /// thread for about 1 ms, and for 200 ms at most.
    #[must_use]
    pub fn new() -> Self {
        let counter = &*TICK_COUNTER;
        let since_origin = counter.os_nanos();
        let since_epoch = wall_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { counter, epoch_nanos: nanos(since_epoch).saturating_sub(since_origin) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.epoch_nanos.saturating_add(self.counter.nanos()) / 1000)
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemClock").finish_non_exhaustive()
    }
}

/// The processor's counter, which all clocks of a process share. Where its rate is not constant,
/// [`quanta::Clock`] reads the operating system's clock instead.
struct TickCounter {
    ticks: quanta::Clock,
    origin: Instant,
}

static TICK_COUNTER: LazyLock<TickCounter> =
    LazyLock::new(|| TickCounter { ticks: quanta::Clock::new(), origin: os_now() });

/// The last reading of the operating system's clock on a thread, and the value of the counter at that
/// time.
#[derive(Clone, Copy)]
struct Anchor {
    count: u64,
    nanos: u64,
}

thread_local! {
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor { count: 0, nanos: 0 }) };
    static LATEST: Cell<u64> = const { Cell::new(0) };
}

/// The time in nanoseconds after which a thread reads the operating system's clock again. If the rate
/// of the counter is wrong by one part in a thousand, the error is at most one microsecond.
const RESYNC_INTERVAL_NANOS: u64 = 1_000_000;

/// The longest time in nanoseconds that a reading of the operating system's clock may take. After a
/// longer one, in which the thread was probably interrupted, the anchor is not renewed.
const MAX_READ_NANOS: u64 = 1_000;

impl TickCounter {
    /// Returns the nanoseconds since the origin.
    fn nanos(&self) -> u64 {
        let anchor = ANCHOR.get();
        let count = self.ticks.raw();
        let nanos = match self.ticks.delta_as_nanos(anchor.count, count) {
            since @ 1..=RESYNC_INTERVAL_NANOS => anchor.nanos + since,
            // The anchor is old, or the counter of this processor is behind another processor's.
            _ => self.resync(count),
        };
        let nanos = nanos.max(LATEST.get());
        LATEST.set(nanos);
        nanos
    }

    fn resync(&self, count: u64) -> u64 {
        let nanos = self.os_nanos();
        if self.ticks.delta_as_nanos(count, self.ticks.raw()) <= MAX_READ_NANOS {
            ANCHOR.set(Anchor { count, nanos });
        }
        nanos
    }

    fn os_nanos(&self) -> u64 {
        nanos(os_now().saturating_duration_since(self.origin))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the monotonic clock"
)]
fn os_now() -> Instant {
    Instant::now()
}

/// The monotonic clock of the operating system, for builds without the feature `redis`, and for
/// operating systems without `CLOCK_BOOTTIME`.
///
/// On some systems it stands still while the machine is suspended. A lease then lasts longer by the
/// time of a suspension.
#[cfg(not(all(feature = "redis", any(target_os = "linux", target_os = "android"))))]
pub(crate) type BootClock = SystemClock;

#[cfg(all(feature = "redis", any(target_os = "linux", target_os = "android")))]
pub(crate) use self::boot::BootClock;

#[cfg(all(feature = "redis", any(target_os = "linux", target_os = "android")))]
mod boot {
    use rustix::time::{ClockId, clock_gettime};

    use crate::clock::{Clock, Timestamp};

    /// The time since the machine was started, with the time in which it was suspended
    /// (`CLOCK_BOOTTIME`). It never steps.
    ///
    /// [`Instant`](std::time::Instant) stands still while a machine is suspended. A lease that is
    /// measured by it would last longer than the store allows.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct BootClock;

    impl BootClock {
        pub(crate) fn new() -> Self {
            Self
        }
    }

    impl Clock for BootClock {
        fn now(&self) -> Timestamp {
            let time = clock_gettime(ClockId::Boottime);
            let micros = (time.tv_sec as u64).saturating_mul(1_000_000);
            Timestamp::from_micros(micros.saturating_add(time.tv_nsec as u64 / 1000))
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
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    /// Reads the clock both just after the anchor was renewed and some time later.
    #[test]
    fn follows_the_operating_system() {
        let clock = SystemClock::new();
        clock.now();
        // Takes the quickest of several pairs of readings, in which the thread was not interrupted.
        let beginnings = (0..10).map(|_| {
            let before = os_now();
            let begin = clock.now().as_micros();
            let start = os_now();
            (start - before, begin, start)
        });
        let (_, begin, start) = beginnings.min().expect("ten");
        let mut errors: Vec<_> = (0..3_000)
            .map(|turn| {
                if turn % 100 == 0 {
                    thread::sleep(Duration::from_micros(turn));
                }
                let elapsed = clock.now().as_micros() - begin;
                elapsed.abs_diff(crate::clock::micros(start.elapsed()))
            })
            .collect();
        errors.sort_unstable();
        // The thread may be interrupted between the two readings, so a few errors may be larger.
        assert!(errors[errors.len() * 9 / 10] <= 3, "{errors:?}");
    }

    #[test]
    fn agrees_with_wall_time_on_every_thread() {
        let clock = SystemClock::new();
        let times = || (clock.now().as_micros(), SystemClock::new().now().as_micros());
        let (mine, fresh) = thread::scope(|scope| scope.spawn(times).join().unwrap());
        assert!(mine.abs_diff(fresh) < 1_000_000, "{mine} and {fresh}");
    }

    #[test]
    fn never_runs_backward_on_a_thread() {
        let clock = SystemClock::new();
        let mut latest = clock.now();
        for _ in 0..300_000 {
            let now = clock.now();
            assert!(now >= latest, "{now:?} after {latest:?}");
            latest = now;
        }
    }
}
