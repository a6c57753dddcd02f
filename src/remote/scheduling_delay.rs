//! The scheduling delay of the process, and whether it hides how fast the store is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

use super::moving_average::MovingAverage;
use crate::{
    clock::micros,
    runtime::{Delay, QueuedTurn},
    telemetry,
};

/// The scheduling delay at which the process is late, so that the response time of the store cannot be
/// measured. A request and its reply pass through the run queue up to eight times. With shorter delays,
/// that takes less than the 40 ms at which a reply is slow.
const MAX_PUNCTUAL_DELAY: Duration = Duration::from_millis(4);

/// The shortest time between two measurements.
const MEASURE_INTERVAL: Duration = Duration::from_millis(10);

/// The scheduling delay of the process. It is measured while calls wait for the store.
#[derive(Debug, Clone)]
pub(super) struct SchedulingDelay(Arc<Measured>);

#[derive(Debug)]
struct Measured {
    average: MovingAverage,
    /// The origin of the times below, which are in microseconds. 0 means that there is no such time.
    origin: Instant,
    /// The start of the measurement that is running.
    running_since: AtomicU64,
    last_start: AtomicU64,
    /// The time at which the process was last late.
    last_late: AtomicU64,
}

impl SchedulingDelay {
    pub(super) fn new() -> Self {
        Self(Arc::new(Measured {
            average: MovingAverage::default(),
            origin: Instant::now(),
            running_since: AtomicU64::new(0),
            last_start: AtomicU64::new(0),
            last_late: AtomicU64::new(0),
        }))
    }

    /// Returns the moving average, if the delay has been measured.
    pub(super) fn average(&self) -> Option<Duration> {
        self.0.average.get()
    }

    /// Starts a measurement, unless one is running or the last one is too recent. It does nothing
    /// outside of a tokio runtime.
    pub(super) fn measure(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let now = self.0.micros(Instant::now());
        let last_start = self.0.last_start.load(Ordering::Relaxed);
        let is_due = last_start == 0 || now - last_start.min(now) >= micros(MEASURE_INTERVAL);
        let running = &self.0.running_since;
        if !is_due || running.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        self.0.last_start.store(now, Ordering::Relaxed);
        let (running, turn) = (MeasuringGuard(Arc::clone(&self.0)), QueuedTurn::start());
        // The task ends after one turn of the runtime.
        runtime.spawn(async move { running.0.record(turn.await) });
    }

    /// Records that a timer for `due` has ended, or ends only now.
    pub(super) fn record_timer(&self, due: Instant) {
        if due.elapsed() >= MAX_PUNCTUAL_DELAY {
            self.0.record_late();
        }
    }

    /// Returns whether the process was late at some time since `start`.
    pub(super) fn was_late_since(&self, start: Instant) -> bool {
        let running = self.0.running_since.load(Ordering::Acquire);
        let now = self.0.micros(Instant::now());
        let is_late = running != 0 && now.saturating_sub(running) >= micros(MAX_PUNCTUAL_DELAY);
        let last_late = self.0.last_late.load(Ordering::Relaxed);
        is_late || (last_late != 0 && last_late >= self.0.micros(start))
    }
}

impl Measured {
    fn record(&self, delay: Delay) {
        self.average.record(delay.time);
        telemetry::scheduling_delayed(delay.time);
        if delay.is_backlogged || delay.time >= MAX_PUNCTUAL_DELAY {
            self.record_late();
        }
    }

    fn record_late(&self) {
        self.last_late.store(self.micros(Instant::now()), Ordering::Relaxed);
    }

    fn micros(&self, time: Instant) -> u64 {
        micros(time.saturating_duration_since(self.origin)).max(1)
    }
}

/// A guard that ends a measurement, also if the runtime drops its task.
struct MeasuringGuard(Arc<Measured>);

impl Drop for MeasuringGuard {
    fn drop(&mut self) {
        self.0.running_since.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        task::yield_now,
        time::{advance, sleep},
    };

    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_punctual_process_is_not_late() {
        let delay = SchedulingDelay::new();
        let start = Instant::now();
        assert_eq!(delay.average(), None);
        delay.measure();
        sleep(10 * MILLI).await;
        assert!(!delay.was_late_since(start));
        assert!(delay.average().expect("measured") < MILLI);
        delay.record_timer(Instant::now() - MILLI);
        assert!(!delay.was_late_since(start));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_knows_the_delays_since_it_began() {
        let delay = SchedulingDelay::new();
        let before = Instant::now();
        delay.measure();
        advance(50 * MILLI).await;
        assert!(delay.was_late_since(before), "the measurement has not ended");
        sleep(MILLI).await;
        assert!(delay.was_late_since(before));
        sleep(MILLI).await;
        let after = Instant::now();
        assert!(!delay.was_late_since(after));
        delay.record_timer(after - 5 * MILLI);
        assert!(delay.was_late_since(after));
    }

    #[tokio::test(start_paused = true)]
    async fn measurements_are_not_too_frequent() {
        let delay = SchedulingDelay::new();
        let is_running = || delay.0.running_since.load(Ordering::Relaxed) != 0;
        delay.measure();
        assert!(is_running());
        sleep(MILLI).await;
        assert!(!is_running());
        delay.measure();
        assert!(!is_running(), "too early");
        sleep(MEASURE_INTERVAL).await;
        delay.measure();
        assert!(is_running());
        yield_now().await;
    }
}
