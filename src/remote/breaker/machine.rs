//! The state machine of the circuit breaker, and its settings.

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
/// let open = Duration::from_secs(2);
/// let breaker = BreakerConfig { consecutive: 5, open, ..BreakerConfig::default() };
/// let resilience = Resilience::default().breaker(breaker);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BreakerConfig {
    /// The time after which the calls are counted anew for [`failures_percent`](Self::failures_percent). The
    /// default is 10 s.
    pub window: Duration,
    /// The minimum number of calls of a window from which on [`failures_percent`](Self::failures_percent) applies.
    /// The default is 10.
    pub min_calls: u32,
    /// The share of failed and slow calls, in percent, at which the breaker opens. A value above 100 counts as 100.
    /// The default is 50.
    pub failures_percent: u32,
    /// The number of consecutive failed or slow calls that opens the breaker. The default is 10, and 0 counts as 1.
    ///
    /// Calls that fail together count as one failure, because a single pause of the store fails all of
    /// them.
    pub consecutive: u32,
    /// The duration from which on a call is slow, which counts as failed. The default is 40 ms.
    pub slow: Duration,
    /// The time between two probes while the breaker is open. Up to 10% is added at random each time. The default
    /// is 500 ms.
    pub open: Duration,
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

/// The outcome of a call: what it says about the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::remote) enum CallOutcome {
    Success,
    /// The store failed, or took too long.
    Failure,
    /// The store was not called, or the caller stopped waiting early.
    Unknown,
}

/// A call that goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::remote) struct Permit {
    /// The time at which the call starts.
    pub(super) start: Duration,
    /// True for the probe, whose outcome decides whether the breaker stays open.
    pub(super) is_probe: bool,
}

/// The shortest time between two probes, whatever [`BreakerConfig::open`] is. Without it, the
/// prober of a store that answers at once would never yield to other tasks.
const MIN_OPEN: Duration = Duration::from_millis(1);

/// The state machine. All times are durations since a common origin, and never decrease.
#[derive(Debug)]
pub(super) struct Breaker {
    config: BreakerConfig,
    /// The time at which the store may be probed. `None` while the breaker is closed.
    probe_at: Option<Duration>,
    /// The number of failures since the last success. A failed call counts if it began after the
    /// previous counted failure had ended.
    consecutive: u32,
    last_failure: Duration,
    window: Window,
    /// The time at which the breaker last opened or closed. Calls that began earlier are not counted.
    changed_at: Duration,
}

/// The calls that ended since a window began.
#[derive(Debug, Default)]
struct Window {
    start: Duration,
    calls: u32,
    failures: u32,
}

impl Breaker {
    pub(super) fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            probe_at: None,
            consecutive: 0,
            last_failure: Duration::ZERO,
            window: Window::default(),
            changed_at: Duration::ZERO,
        }
    }

    /// Returns the time of the next probe, or `None` if the breaker is closed.
    pub(super) fn probe_at(&self) -> Option<Duration> {
        self.probe_at
    }

    /// Returns the time at which the breaker last opened or closed.
    pub(super) fn changed_at(&self) -> Duration {
        self.changed_at
    }

    /// Returns whether a call that starts at `start` would go through, as in [`try_acquire`](Self::try_acquire).
    pub(super) fn admits(&self, start: Duration, late: Duration) -> bool {
        self.probe_at.is_none_or(|probe_at| start >= probe_at.saturating_add(late))
    }

    /// Requests the permit of a call that starts at `start`. While the breaker is open, a call goes through as
    /// the probe if the probe is due and `late` has passed since.
    ///
    /// The probe has no end of its own. If it has no outcome by the time of the next probe, that one begins.
    pub(super) fn try_acquire(&mut self, start: Duration, late: Duration) -> Option<Permit> {
        if !self.admits(start, late) {
            return None;
        }
        if self.probe_at.is_none() {
            return Some(Permit { start, is_probe: false });
        }
        self.probe_at = Some(start.saturating_add(self.open_time()));
        Some(Permit { start, is_probe: true })
    }

    /// Records the outcome of a call that ended at `now`. `random` spreads the probes of several
    /// instances.
    pub(super) fn record(
        &mut self,
        now: Duration,
        permit: Permit,
        outcome: CallOutcome,
        random: impl FnOnce() -> u64,
    ) {
        // A call that began before a change says nothing about the store now, nor does a call that is no probe
        // about a store that has failed.
        if permit.start < self.changed_at || permit.is_probe != self.probe_at.is_some() {
            return;
        }
        let has_failed = match outcome {
            CallOutcome::Unknown => return,
            CallOutcome::Success => false,
            CallOutcome::Failure => true,
        };
        if permit.is_probe {
            if has_failed {
                self.probe_later(now, random);
            } else {
                *self = Self { changed_at: now, ..Self::new(self.config) };
            }
        } else if self.count(now, permit.start, has_failed) {
            self.changed_at = now;
            self.probe_later(now, random);
        }
    }

    /// Returns the time between two probes.
    pub(super) fn open_time(&self) -> Duration {
        self.config.open.max(MIN_OPEN)
    }

    /// Counts a call of a closed breaker. Returns whether it opens the breaker.
    fn count(&mut self, now: Duration, start: Duration, has_failed: bool) -> bool {
        if now.saturating_sub(self.window.start) >= self.config.window {
            self.window = Window { start: now, ..Window::default() };
        }
        self.window.calls = self.window.calls.saturating_add(1);
        if !has_failed {
            self.consecutive = 0;
            return false;
        }
        self.window.failures = self.window.failures.saturating_add(1);
        if self.consecutive == 0 || start >= self.last_failure {
            self.consecutive = self.consecutive.saturating_add(1);
            self.last_failure = now;
        }
        let Window { calls, failures, .. } = self.window;
        let percent = u64::from(self.config.failures_percent.min(100));
        let has_too_many = u64::from(failures) * 100 >= u64::from(calls) * percent;
        self.consecutive >= self.config.consecutive
            || calls >= self.config.min_calls && has_too_many
    }

    fn probe_later(&mut self, now: Duration, random: impl FnOnce() -> u64) {
        let open = self.open_time();
        let spread = open.mul_f64(0.1 * (random() % 1_000) as f64 / 1_000.0);
        self.probe_at = Some(now.saturating_add(open).saturating_add(spread));
    }
}
