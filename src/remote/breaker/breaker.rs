//! The circuit breaker of one node and its settings: a state machine without clock, store or locks, and a lock around
//! it, so that calls on many threads share it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    decision::StoreReply,
    error::{Error, ErrorKind},
    random,
    runtime::{BackgroundTask, RunningFlag, saturating_add},
    store::{BreakerStatus, NodeId},
    sync::Mutex,
    telemetry,
};

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

/// The circuit breaker of one node of a store, which calls on many threads share.
///
/// While the breaker is open, its [prober](crate::remote::recovery) probes the node. If there is no prober, or
/// its probe is late, a call serves as the probe.
#[derive(Debug)]
pub(in crate::remote) struct SharedBreaker {
    breaker: Mutex<Breaker>,
    /// Written under the lock and read without it, so a call may see a value that is just being replaced.
    is_open: AtomicBool,
    pub(in crate::remote) prober: BackgroundTask,
    /// Set while the prober runs in a runtime with threads of its own, so that its probes are not late.
    pub(in crate::remote) is_probed: RunningFlag,
    config: BreakerConfig,
    origin: Instant,
    node: NodeId,
    /// The number of breakers of the limiter that are open.
    open_breakers: Arc<AtomicUsize>,
}

impl SharedBreaker {
    pub(super) fn new(
        config: BreakerConfig,
        node: NodeId,
        open_breakers: Arc<AtomicUsize>,
    ) -> Self {
        telemetry::breaker_made();
        Self {
            breaker: Mutex::new(Breaker::new(config)),
            is_open: AtomicBool::new(false),
            prober: BackgroundTask::default(),
            is_probed: RunningFlag::default(),
            config,
            origin: Instant::now(),
            node,
            open_breakers,
        }
    }

    /// Returns the node whose breaker this is.
    pub(in crate::remote) fn node(&self) -> NodeId {
        self.node
    }

    pub(in crate::remote) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Returns whether the breaker is open and is certainly probed, so that no call goes through.
    ///
    /// This takes no lock and reads no clock (`benches/resilience.rs`: the breaker is open).
    pub(in crate::remote) fn rejects_all(&self) -> bool {
        self.is_open() && self.is_probed.is_set()
    }

    /// Requests the permit of a call that starts at `start`. Returns `None` if the breaker rejects it.
    pub(in crate::remote) fn try_acquire(&self, start: Instant) -> Option<Permit> {
        self.try_acquire_late(start, self.lateness())
    }

    /// Returns whether the breaker would admit a call that starts at `start`.
    pub(in crate::remote) fn admits(&self, start: Instant) -> bool {
        !self.is_open() || self.breaker.lock().admits(start - self.origin, self.lateness())
    }

    /// Returns the time that calls leave to the prober before one of them is the probe.
    fn lateness(&self) -> Duration {
        if self.prober.is_running() { self.config.open } else { Duration::ZERO }
    }

    /// Requests the permit of the prober for a probe that starts at `start`. Returns `None` if a call serves as
    /// the probe.
    pub(in crate::remote) fn try_probe(&self, start: Instant) -> Option<Permit> {
        self.try_acquire_late(start, Duration::ZERO)
    }

    /// Returns the time of the next probe, or `None` if the breaker is closed.
    pub(in crate::remote) fn next_probe(&self) -> Option<Instant> {
        let probe_at = self.breaker.lock().probe_at()?;
        Some(saturating_add(self.origin, probe_at))
    }

    /// Records the outcome of a call.
    pub(in crate::remote) fn record(&self, permit: Permit, now: Instant, outcome: CallOutcome) {
        let mut breaker = self.breaker.lock();
        breaker.record(now - self.origin, permit, outcome, random::number);
        let is_open = breaker.probe_at().is_some();
        let was_open = self.is_open.swap(is_open, Ordering::Relaxed);
        drop(breaker);
        if is_open != was_open {
            self.count(is_open);
            telemetry::breaker_changed(is_open, self.node.number());
        }
    }

    /// Returns the outcome of a call whose reply has arrived. `time` is the time that the store has
    /// taken, or `None` if it could not be measured.
    pub(in crate::remote) fn judge(
        &self,
        reply: &Result<StoreReply, Error>,
        time: Option<Duration>,
    ) -> CallOutcome {
        match reply {
            // The request was invalid and was not sent, so it says nothing about the store.
            Err(error) if !error.is_unavailable() => CallOutcome::Unknown,
            // A key of the wrong type is an answer of a store that works.
            Err(error) if error.kind() != ErrorKind::WrongType => CallOutcome::Failure,
            _ if self.is_slow(time) => CallOutcome::Failure,
            _ => CallOutcome::Success,
        }
    }

    /// Returns the outcome of a call whose caller has stopped waiting for the reply.
    pub(in crate::remote) fn judge_abandoned(&self, time: Option<Duration>) -> CallOutcome {
        if self.is_slow(time) { CallOutcome::Failure } else { CallOutcome::Unknown }
    }

    /// Returns the state for [`Status`](crate::store::Status).
    pub(in crate::remote) fn status(&self) -> BreakerStatus {
        let now = Instant::now() - self.origin;
        let breaker = self.breaker.lock();
        match breaker.probe_at() {
            None => BreakerStatus::Closed,
            Some(probe_at) => BreakerStatus::Open {
                elapsed: now.saturating_sub(breaker.changed_at()),
                probe_after: probe_at.saturating_sub(now),
            },
        }
    }

    /// Returns the duration from which on a call counts as slow.
    pub(in crate::remote) fn slow(&self) -> Duration {
        self.config.slow
    }

    fn is_slow(&self, time: Option<Duration>) -> bool {
        time.is_some_and(|time| time >= self.config.slow)
    }

    fn try_acquire_late(&self, start: Instant, late: Duration) -> Option<Permit> {
        let start = start - self.origin;
        if !self.is_open() {
            return Some(Permit { start, is_probe: false });
        }
        self.breaker.lock().try_acquire(start, late)
    }

    fn count(&self, is_open: bool) {
        if is_open {
            self.open_breakers.fetch_add(1, Ordering::Relaxed);
            telemetry::breakers_opened(1);
        } else {
            self.open_breakers.fetch_sub(1, Ordering::Relaxed);
            telemetry::breakers_opened(-1);
        }
    }
}

impl Drop for SharedBreaker {
    fn drop(&mut self) {
        // The node has left the store, or the limiter has ended.
        if self.is_open() {
            self.count(false);
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
