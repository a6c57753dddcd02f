//! Waits that measure the store, and not the delay with which a busy process runs its own tasks.
//!
//! In a process with more work than processor time, each task waits in the run queue of the runtime. A timer
//! then ends while the reply lies unread in the socket, or before the request has been written. So when a
//! timer ends, its task first passes through the run queue, and the wait goes on if the process is late
//! (`tests/faults/saturated.rs`).

use std::{cell::Cell, future::poll_fn, panic, pin::Pin, task::Poll, time::Duration};

use tokio::{
    runtime::{Handle, Id},
    time::{self, Instant},
};

use super::{SchedulingDelay, scheduling_delay::is_backlogged};

/// The number of times that a late process waits again at most. A request and its reply pass
/// through the run queue that many times.
const MAX_EXTENSIONS: u32 = 8;

/// A process is late if its timer is late by at least the period divided by this number.
const LATE_FRACTION: u32 = 10;

/// The shortest delay that makes the process late. A timer of tokio is up to 1 ms late.
const MIN_LATE: Duration = Duration::from_millis(2);

/// The longest delay between the time for which a timer is set and the time at which it fires.
pub(crate) const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// The time after which a wait that goes on measures the scheduling delay.
const MEASURE_AFTER: Duration = Duration::from_millis(10);

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
        Self { at: saturating_add(Instant::now(), period), period }
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
    /// If the process is late at the end, the wait is extended by the time of the delay, at most by
    /// another period. If tasks are left in the global queue, it is extended by a whole period. There are
    /// at most [`MAX_EXTENSIONS`] extensions.
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
            if let Ok(output) = time::timeout_at(at, future.as_mut()).await {
                return Ok(output);
            }
            // The timer was late, and then the turn took its time.
            if let Some(output) = one_turn(future.as_mut()).await {
                return Ok(output);
            }
            let more = match at.elapsed() {
                _ if is_backlogged() => self.period,
                delay if delay >= late => delay.min(self.period),
                _ => break,
            };
            at = saturating_add(Instant::now(), more);
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

/// Polls `future` while its task passes through the run queue of the runtime three times. A task for which a reply
/// has arrived meanwhile has then been polled, unless it is in the global queue of a runtime with several threads.
async fn one_turn<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut turns = 0;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if turns == 3 => Poll::Ready(None),
        Poll::Pending => {
            turns += 1;
            // A task that wakes itself goes to the end of the run queue.
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::{
        sync::oneshot,
        task::yield_now,
        time::{advance, sleep},
    };

    use super::*;

    const PERIOD: Duration = Duration::from_millis(50);

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
    async fn a_short_delay_is_made_up_for() {
        let start = Instant::now();
        let call = tokio::spawn(async move {
            TimeLimit::at(start + PERIOD).wait(pin!(std::future::pending::<()>())).await
        });
        yield_now().await;
        let delay = PERIOD * 2 / 5;
        stall(PERIOD + delay).await;
        assert_eq!(call.await.expect("no panic"), Err(Elapsed));
        let more = start.elapsed() - PERIOD;
        assert!(more.abs_diff(2 * delay) <= Duration::from_millis(2), "{more:?}");
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
}
