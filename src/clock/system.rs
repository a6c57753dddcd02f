//! The clock of the embedded store: as right as the operating system's, at a third of its price.
//!
//! The processor's counter is quick to read, but its rate is measured, not known, so that time
//! counted by it drifts. So each thread asks the operating system anew after a moment, and counts
//! on from its answer.

use std::{
    cell::Cell,
    fmt,
    sync::LazyLock,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use super::{Clock, Timestamp};

/// The operating system's monotonic clock, anchored once to wall time.
///
/// It never steps: when the wall clock is corrected later, this one keeps its own count, so that
/// no window is cut short or repeated.
///
/// Each thread asks the operating system at least every 100 µs. In between it counts the ticks of
/// the processor, if those come at a constant rate: then it is off by 1 µs or so, which is also by
/// how much two threads may disagree. On one thread the time never runs backward.
///
/// # When wall time is elsewhere
///
/// Two things put a clock behind wall time or beside it, for as long as the process runs:
///
/// - On Linux and macOS the monotonic clock stands still while the machine is suspended. Units then
///   come back later, by as long as it slept.
/// - A process may start before the machine has been told the time, by NTP for instance. The clock
///   then keeps the wrong time that it began with.
///
/// By this clock's count, limits and waits hold all the same. But the edges of a
/// [`FixedWindow`](crate::Algorithm::FixedWindow), such as midnight UTC, and the times that
/// [`Reset::Epoch`](crate::Reset::Epoch) names are off by as much. Where that matters, start the
/// process after the time is set, and again after a suspend; or give
/// [`MemoryConfig::clock`](crate::store::MemoryConfig::clock) a [`Clock`] of your own. A store in
/// Redis goes by the server's time.
#[derive(Clone, Copy)]
pub struct SystemClock {
    ticks: &'static Ticks,
    /// Wall time at the origin of the ticks.
    epoch_nanos: u64,
}

impl SystemClock {
    /// A clock that agrees with wall time now.
    ///
    /// The first one in a process measures how fast the processor ticks, which takes about a
    /// millisecond, and at most 200. It blocks meanwhile.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn new() -> Self {
        let ticks = &*TICKS;
        let since_origin = ticks.os_nanos();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { ticks, epoch_nanos: super::nanos(since_epoch).saturating_sub(since_origin) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.epoch_nanos.saturating_add(self.ticks.nanos()) / 1000)
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemClock").finish_non_exhaustive()
    }
}

/// What all clocks of a process count by. Where ticks do not come at a constant rate, the counter
/// itself asks the operating system.
struct Ticks {
    counter: quanta::Clock,
    origin: Instant,
}

static TICKS: LazyLock<Ticks> =
    LazyLock::new(|| Ticks { counter: quanta::Clock::new(), origin: os_now() });

/// What the operating system last told a thread: so many nanoseconds, when the counter had just
/// come to `count`.
#[derive(Clone, Copy)]
struct Anchor {
    count: u64,
    nanos: u64,
}

thread_local! {
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor { count: 0, nanos: 0 }) };
    static LATEST: Cell<u64> = const { Cell::new(0) };
}

/// For how many nanoseconds a thread counts on by itself: a rate that is wrong by as much as one in
/// a hundred makes it wrong by a microsecond.
const TRUSTED: u64 = 100_000;
/// A thread that had to wait for longer than this for the operating system's answer does not count
/// on from it.
const PROMPT: u64 = 1_000;

impl Ticks {
    /// Nanoseconds since the origin.
    #[inline]
    fn nanos(&self) -> u64 {
        let anchor = ANCHOR.get();
        let count = self.counter.raw();
        let nanos = match self.counter.delta_as_nanos(anchor.count, count) {
            since @ 1..=TRUSTED => anchor.nanos + since,
            // The anchor is old, or this processor's counter is behind another's.
            _ => self.ask(count),
        };
        let nanos = nanos.max(LATEST.get());
        LATEST.set(nanos);
        nanos
    }

    #[cold]
    fn ask(&self, count: u64) -> u64 {
        let nanos = self.os_nanos();
        if self.counter.delta_as_nanos(count, self.counter.raw()) <= PROMPT {
            ANCHOR.set(Anchor { count, nanos });
        }
        nanos
    }

    fn os_nanos(&self) -> u64 {
        super::nanos(os_now().saturating_duration_since(self.origin))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
fn os_now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    /// The anchor is a moment old at each reading, or has just been renewed.
    #[test]
    fn follows_the_operating_system() {
        let clock = SystemClock::new();
        clock.now();
        // Of several beginnings the quickest one: nothing came between its readings.
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
        // Between the two readings the thread may have to wait.
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
