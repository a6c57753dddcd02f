//! Waits that measure the store, and not the delay with which a busy process runs its own tasks.
//!
//! In a process with more work than processor time, each task waits in the run queue of the runtime. A timer
//! then ends while the reply lies unread in the socket, or before the request has been written. So when a
//! timer ends, its task first passes through the run queue, and the wait goes on if the process is late
//! (`tests/faults/saturated.rs`).

use std::{
    cell::Cell,
    panic,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::{Handle, Id},
    task::yield_now,
    time::{self, Instant},
};

use crate::{clock::micros, telemetry};

/// The number of times that a late process waits again at most. A request and its reply pass
/// through the run queue that many times.
const MAX_EXTENSIONS: u32 = 8;

/// The number of times that a task passes through the run queue at the end of a wait. A task for which a reply has arrived
/// meanwhile has then been polled, unless it is in the global queue of a runtime with several threads.
const TURNS: u32 = 3;

/// A process is late if its timer is late by at least the period divided by this number.
const LATE_FRACTION: u32 = 10;

/// The shortest delay that makes the process late. A timer of tokio is up to 1 ms late.
const MIN_LATE: Duration = Duration::from_millis(2);

/// The longest delay between the time for which a timer is set and the time at which it fires.
pub(crate) const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// The time after which a wait that goes on measures the scheduling delay.
const MEASURE_AFTER: Duration = Duration::from_millis(10);

/// The scheduling delay at which the process is late, so that the response time of the store cannot be
/// measured. A request and its reply pass through the run queue up to eight times. With shorter delays,
/// that takes less than the 40 ms at which a reply is slow.
const MAX_PUNCTUAL_DELAY: Duration = Duration::from_millis(4);

/// A time at which a wait ends, unless the process is late, and the length of the wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimit {
    at: Instant,
    period: Duration,
}

/// The wait in place of one that exceeds the range of the clock: about 30 years.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Returns the time `duration` after `start`, or a time in the far future if there is no such time.
pub(crate) fn saturating_add(start: Instant, duration: Duration) -> Instant {
    start.checked_add(duration).unwrap_or_else(|| start + FAR_FUTURE)
}

thread_local! {
    /// The runtime that was last asked for on this thread, and whether it has timers.
    static HAS_TIMER: Cell<Option<(Id, bool)>> = const { Cell::new(None) };
}

/// Returns the tokio runtime of the caller if it has timers: if its time driver is enabled.
///
/// tokio cannot be asked for its driver. A timer that has none panics, so the first call on a thread
/// of a runtime without one prints the message of that panic. Where panics abort, it aborts.
pub(crate) fn runtime_with_timer() -> Option<Handle> {
    let runtime = Handle::try_current().ok()?;
    let id = runtime.id();
    let has_timer = match HAS_TIMER.get() {
        Some((last, has_timer)) if last == id => has_timer,
        _ => {
            let has_timer = panic::catch_unwind(|| drop(time::sleep(Duration::ZERO))).is_ok();
            HAS_TIMER.set(Some((id, has_timer)));
            has_timer
        }
    };
    has_timer.then_some(runtime)
}

/// The error of a future that was not ready in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elapsed;

impl TimeLimit {
    /// Creates the limit of a wait that begins now and ends at `at`.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn at(at: Instant) -> Self {
        Self { at, period: at.saturating_duration_since(Instant::now()) }
    }

    /// Creates the limit of a wait that begins now and ends after `period`.
    pub(crate) fn after(period: Duration) -> Self {
        Self::from(Instant::now(), period)
    }

    /// Creates the limit of a wait that begins at `start` and ends after `period`.
    pub(crate) fn from(start: Instant, period: Duration) -> Self {
        Self { at: saturating_add(start, period), period }
    }

    /// Returns the time at which the wait has begun.
    #[cfg(feature = "redis")]
    pub(crate) fn start(self) -> Instant {
        self.at - self.period
    }

    /// Returns the time at which the wait ends unless the process is late.
    pub(crate) fn time(self) -> Instant {
        self.at
    }

    /// Returns the length of the wait unless the process is late.
    pub(crate) fn period(self) -> Duration {
        self.period
    }

    pub(crate) fn has_passed(self) -> bool {
        Instant::now() >= self.at
    }

    /// Returns the earlier one of two limits.
    #[cfg(feature = "redis")]
    pub(crate) fn min(self, other: Self) -> Self {
        if self.at <= other.at { self } else { other }
    }

    /// Waits for `future`, like [`tokio::time::timeout_at`].
    ///
    /// If the process is late at the end, or tasks are left in the global queue, the wait is extended by another
    /// period, at most [`MAX_EXTENSIONS`] times.
    ///
    /// # Errors
    ///
    /// Returns an error if `future` is not ready at the end of the wait.
    pub(crate) async fn wait<F: Future>(
        self,
        mut future: Pin<&mut F>,
    ) -> Result<F::Output, Elapsed> {
        let late = (self.period / LATE_FRACTION).max(MIN_LATE);
        let mut at = self.at;
        for _ in 0..=MAX_EXTENSIONS {
            for _ in 0..=TURNS {
                if let Ok(output) = time::timeout_at(at, future.as_mut()).await {
                    return Ok(output);
                }
                yield_now().await;
            }
            if at.elapsed() < late && !is_backlogged() {
                break;
            }
            at = saturating_add(Instant::now(), self.period);
        }
        Err(Elapsed)
    }

    /// Waits for `future` like [`wait`](Self::wait), and measures the scheduling delay if it takes long.
    ///
    /// # Errors
    ///
    /// Returns an error if `future` is not ready at the end of the wait.
    pub(crate) async fn wait_measured<F: Future>(
        self,
        mut future: Pin<&mut F>,
        delay: &SchedulingDelay,
    ) -> Result<F::Output, Elapsed> {
        let start = Instant::now();
        // A wait that begins after the end of an earlier one has no time in which to measure.
        let measure_at = self.at.min(start + MEASURE_AFTER).max(start);
        let quick = time::timeout_at(measure_at, future.as_mut()).await;
        delay.record_timer(measure_at);
        if let Ok(output) = quick {
            return Ok(output);
        }
        let output = self.wait(future).await;
        // Only a late process waits for longer than until the end.
        delay.record_timer(self.at + TIMER_RESOLUTION);
        output
    }
}

/// The scheduling delay of the process: the time by which the timers of calls to the store are late.
#[derive(Debug, Clone)]
pub(crate) struct SchedulingDelay(Arc<Measured>);

#[derive(Debug)]
struct Measured {
    average: MovingAverage,
    origin: Instant,
    /// The time at which the process was last late, in microseconds since the origin. 0 means never.
    last_late: AtomicU64,
}

impl Default for SchedulingDelay {
    fn default() -> Self {
        Self(Arc::new(Measured {
            average: MovingAverage::default(),
            origin: Instant::now(),
            last_late: AtomicU64::new(0),
        }))
    }
}

impl SchedulingDelay {
    /// Returns the moving average, if the delay has been measured.
    pub(crate) fn average(&self) -> Option<Duration> {
        self.0.average.get()
    }

    /// Records that a task goes on whose timer was set for `due`. Before that time nothing is recorded.
    pub(crate) fn record_timer(&self, due: Instant) {
        let now = Instant::now();
        let Some(delay) = now.checked_duration_since(due) else { return };
        self.0.average.record(delay);
        telemetry::scheduling_delayed(delay);
        if delay >= MAX_PUNCTUAL_DELAY || is_backlogged() {
            self.0.last_late.store(self.0.micros(now), Ordering::Relaxed);
        }
    }

    /// Returns whether the process was late at some time since `start`.
    pub(crate) fn was_late_since(&self, start: Instant) -> bool {
        self.0.last_late.load(Ordering::Relaxed) >= self.0.micros(start)
    }
}

impl Measured {
    /// Returns a time in microseconds since the origin, at least 1.
    fn micros(&self, time: Instant) -> u64 {
        micros(time.saturating_duration_since(self.origin)).max(1)
    }
}

/// Returns whether tasks are left in the global queue of the caller's runtime. Threads with tasks of
/// their own rarely take one from there.
fn is_backlogged() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.metrics().global_queue_depth() > 0)
}

/// An exponential moving average. If two threads record at the same time, one sample may be lost.
#[derive(Debug, Default)]
pub(crate) struct MovingAverage {
    /// In nanoseconds; 0 if nothing has been recorded.
    average: AtomicU64,
}

/// The reciprocal of the weight of a new sample: it counts for one eighth.
const SMOOTHING: u64 = 8;

impl MovingAverage {
    /// Adds a sample to the average.
    pub(crate) fn record(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX).max(1);
        let average = match self.average.load(Ordering::Relaxed) {
            0 => sample,
            before => before - before / SMOOTHING + sample / SMOOTHING,
        };
        self.average.store(average.max(1), Ordering::Relaxed);
    }

    /// Returns the average, if anything has been recorded.
    pub(crate) fn get(&self) -> Option<Duration> {
        self.nanos().map(Duration::from_nanos)
    }

    /// Returns the average in microseconds, rounded down, if anything has been recorded.
    pub(crate) fn micros(&self) -> Option<u64> {
        self.nanos().map(|nanos| nanos / 1000)
    }

    fn nanos(&self) -> Option<u64> {
        Some(self.average.load(Ordering::Relaxed)).filter(|nanos| *nanos > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::{
        sync::oneshot,
        time::{advance, sleep},
    };

    use super::*;

    const PERIOD: Duration = Duration::from_millis(50);
    const MILLI: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_punctual_process_stops_at_the_deadline() {
        let start = Instant::now();
        let never = pin!(std::future::pending::<()>());
        assert_eq!(TimeLimit::at(start + PERIOD).wait(never).await, Err(Elapsed));
        assert!(start.elapsed() <= PERIOD + Duration::from_millis(1), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_future_comes_first_at_the_deadline() {
        let start = Instant::now();
        let future = pin!(sleep(PERIOD));
        assert_eq!(TimeLimit::at(start + PERIOD).wait(future).await, Ok(()));
    }

    /// Makes the process late: it polls no task for this long.
    async fn stall(duration: Duration) {
        advance(duration).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_process_waits_for_another_period() {
        let start = Instant::now();
        let (sender, receiver) = oneshot::channel::<()>();
        let call = tokio::spawn(async move {
            TimeLimit::at(start + PERIOD).wait(pin!(receiver)).await.map(|reply| reply.is_ok())
        });
        yield_now().await;
        stall(8 * PERIOD).await;
        // The request is sent now, and answered a little later.
        sleep(PERIOD / 2).await;
        sender.send(()).expect("the call waits");
        assert_eq!(call.await.expect("no panic"), Ok(true));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_stall_the_store_has_one_period() {
        let start = Instant::now();
        let call = tokio::spawn(async move {
            TimeLimit::at(start + PERIOD).wait(pin!(std::future::pending::<()>())).await
        });
        yield_now().await;
        stall(8 * PERIOD).await;
        let stalled = Instant::now();
        assert_eq!(call.await.expect("no panic"), Err(Elapsed));
        let more = stalled.elapsed();
        assert!(more.abs_diff(PERIOD) <= Duration::from_millis(2), "{more:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_delay_gives_the_store_one_more_period() {
        let start = Instant::now();
        let call = tokio::spawn(async move {
            TimeLimit::at(start + PERIOD).wait(pin!(std::future::pending::<()>())).await
        });
        yield_now().await;
        stall(PERIOD + PERIOD / LATE_FRACTION).await;
        let stalled = Instant::now();
        assert_eq!(call.await.expect("no panic"), Err(Elapsed));
        let more = stalled.elapsed();
        assert!(more.abs_diff(PERIOD) <= Duration::from_millis(2), "{more:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_stays_late_stops_after_eight_extensions() {
        let start = Instant::now();
        let call = tokio::spawn(async move {
            TimeLimit::at(start + PERIOD).wait(pin!(std::future::pending::<()>())).await
        });
        let mut stalls = 0;
        while !call.is_finished() {
            yield_now().await;
            stall(2 * PERIOD).await;
            stalls += 1;
        }
        assert_eq!(call.await.expect("no panic"), Err(Elapsed));
        // A turn takes several of them.
        assert!((8..=40).contains(&stalls), "{stalls} stalls");
    }

    #[tokio::test(start_paused = true)]
    async fn a_punctual_process_is_not_late() {
        let delay = SchedulingDelay::default();
        let start = Instant::now();
        assert_eq!(delay.average(), None);
        delay.record_timer(start + MILLI);
        assert_eq!(delay.average(), None, "the timer has not ended");
        sleep(10 * MILLI).await;
        delay.record_timer(start + 9 * MILLI);
        assert!(!delay.was_late_since(start));
        assert_eq!(delay.average(), Some(MILLI));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_knows_the_delays_since_it_began() {
        let delay = SchedulingDelay::default();
        let start = Instant::now();
        advance(50 * MILLI).await;
        delay.record_timer(start + 10 * MILLI);
        assert!(delay.was_late_since(start));
        sleep(MILLI).await;
        assert!(!delay.was_late_since(Instant::now()));
    }

    #[test]
    fn follows_the_samples() {
        let average = MovingAverage::default();
        assert_eq!(average.get(), None);
        average.record(Duration::from_millis(8));
        assert_eq!(average.get(), Some(Duration::from_millis(8)));
        average.record(Duration::from_millis(16));
        assert_eq!(average.get(), Some(Duration::from_millis(9)));
        (0..100).for_each(|_| average.record(Duration::from_millis(2)));
        let average = average.get().expect("recorded");
        assert!(
            average.abs_diff(Duration::from_millis(2)) < Duration::from_micros(1),
            "{average:?}"
        );
    }
}
