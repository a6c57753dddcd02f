//! The settings of the circuit breaker.

use std::time::Duration;

/// The settings of the circuit breaker around a [`Store`](crate::store::Store). In a Redis cluster,
/// each node has a breaker with these settings.
///
/// - **Closed**, the first state: every call goes to the store. The breaker opens when
///   [`consecutive`](Self::consecutive) calls fail without a success in between, or when
///   [`failures_percent`](Self::failures_percent) of the calls of a [`window`](Self::window) have failed.
/// - **Open**: no call goes to the store. A background task probes the store every
///   [`open`](Self::open). The breaker closes with the first probe that succeeds.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use plimsoll::{Resilience, resilience::BreakerConfig};
///
/// let breaker = BreakerConfig::default().consecutive(5).open(Duration::from_secs(2));
/// let resilience = Resilience::default().breaker(breaker);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BreakerConfig {
    pub(super) window: Duration,
    pub(super) min_calls: u32,
    pub(super) failures_percent: u32,
    pub(super) consecutive: u32,
    pub(super) slow: Duration,
    pub(super) open: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            min_calls: 10,
            failures_percent: 50,
            consecutive: 10,
            slow: Duration::from_millis(40),
            open: Duration::from_millis(500),
        }
    }
}

impl BreakerConfig {
    /// Sets the time after which the calls are counted anew for
    /// [`failures_percent`](Self::failures_percent). The default is 10 s.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Sets the minimum number of calls of a window from which on
    /// [`failures_percent`](Self::failures_percent) applies. The default is 10.
    #[must_use]
    pub fn min_calls(mut self, calls: u32) -> Self {
        self.min_calls = calls;
        self
    }

    /// Sets the share of failed and slow calls, in percent, at which the breaker opens, 1 to 100. A
    /// value outside of this range counts as the nearest one within. The default is 50.
    #[must_use]
    pub fn failures_percent(mut self, percent: u32) -> Self {
        self.failures_percent = percent.clamp(1, 100);
        self
    }

    /// Sets the number of consecutive failed or slow calls that opens the breaker, at least 1: 0 counts
    /// as 1. The default is 10.
    ///
    /// Calls that fail together count as one failure, because a single pause of the store fails all of
    /// them.
    #[must_use]
    pub fn consecutive(mut self, calls: u32) -> Self {
        self.consecutive = calls.max(1);
        self
    }

    /// Sets the duration from which on a call is slow, which counts as failed. The default is 40 ms.
    #[must_use]
    pub fn slow(mut self, slow: Duration) -> Self {
        self.slow = slow;
        self
    }

    /// Sets the time between two probes while the breaker is open. Up to 10% is added at random each
    /// time. The default is 500 ms.
    #[must_use]
    pub fn open(mut self, open: Duration) -> Self {
        self.open = open;
        self
    }
}
