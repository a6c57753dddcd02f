//! The delay before a failed operation is tried again.

use std::time::Duration;

use tokio::time::Instant;

use crate::random;

/// The first delay. Each failure doubles it, up to [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(10);
/// The longest delay. It is shorter than the breaker's interval between probes, so each probe finds
/// a new attempt to connect.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// The time after the end of a delay from which on the next failure starts again with
/// [`FIRST_DELAY`].
const FORGET_AFTER: Duration = Duration::from_secs(1);

/// An exponential backoff with jitter.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    retry_at: Option<Instant>,
}

impl Backoff {
    /// Returns whether the operation may run again.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|retry_at| now >= retry_at)
    }

    /// Starts a fixed delay, after a success.
    pub(super) fn pause(&mut self, now: Instant, pause: Duration) {
        self.retry_at = Some(now + pause);
    }

    /// Starts the next delay, after a failure.
    ///
    /// A success does not reset the delay. Otherwise a server whose connections open but fail at
    /// the first request would get a new connection for each request.
    pub(super) fn fail(&mut self, now: Instant) {
        if self.retry_at.is_some_and(|retry_at| now > retry_at + FORGET_AFTER) {
            self.failures = 0;
        }
        let delay = FIRST_DELAY * (1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + jittered(delay.min(MAX_DELAY)));
    }
}

/// Returns a random time between half of `delay` and all of it, so that the instances that lost the
/// same server do not all reconnect at once.
fn jittered(delay: Duration) -> Duration {
    let part = (random::number() % 1_000) as f64 / 1_000.0;
    delay / 2 + (delay / 2).mul_f64(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn delays_double_up_to_the_longest() {
        let (mut now, mut backoff) = (Instant::now(), Backoff::default());
        assert!(backoff.is_over(now));
        for number in 0..12 {
            backoff.fail(now);
            let delay = (FIRST_DELAY * (1 << number)).min(MAX_DELAY);
            assert!(!backoff.is_over(now + delay / 2 - Duration::from_millis(1)), "{number}");
            assert!(backoff.is_over(now + delay), "{number}");
            now += delay;
        }
        // A success changes nothing, time does.
        backoff.pause(now, Duration::ZERO);
        assert!(backoff.is_over(now));
        backoff.fail(now);
        assert!(!backoff.is_over(now + FIRST_DELAY));
        now += MAX_DELAY + 2 * FORGET_AFTER;
        backoff.fail(now);
        assert!(backoff.is_over(now + FIRST_DELAY));
    }
}
