//! The breaker that calls on many threads share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    BreakerConfig, CallOutcome,
    machine::{Breaker, Permit},
};
use crate::{
    decision::StoreReply,
    error::{Error, ErrorKind},
    random,
    runtime::{BackgroundTask, RunningFlag, saturating_add},
    store::{BreakerStatus, NodeId},
    sync::Mutex,
    telemetry,
};

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
    #[inline]
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
