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
use crate::{clock::micros, telemetry};

/// The scheduling delay at which the process is late, so that the response time of the store cannot be
/// measured. A request and its reply pass through the run queue up to eight times. With shorter delays,
/// that takes less than the 40 ms at which a reply is slow.
const MAX_PUNCTUAL_DELAY: Duration = Duration::from_millis(4);

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
        let last_late = self.0.last_late.load(Ordering::Relaxed);
        last_late != 0 && last_late >= self.0.micros(start)
    }
}

impl Measured {
    fn micros(&self, time: Instant) -> u64 {
        micros(time.saturating_duration_since(self.origin)).max(1)
    }
}

/// Returns whether tasks are left in the global queue of the caller's runtime. Threads with tasks of
/// their own rarely take one from there.
pub(super) fn is_backlogged() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.metrics().global_queue_depth() > 0)
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

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
}
