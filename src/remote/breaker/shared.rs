//! The breaker that calls on many threads share.

use std::{
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::AbortHandle,
    time::Instant,
};

use super::{
    BreakerConfig, BreakerState, CallOutcome,
    machine::{Breaker, Permission},
};
use crate::{
    decision::StoreReply,
    error::{Error, ErrorKind},
    random,
    runtime::saturating_add,
    store::{BreakerStatus, NodeId},
    sync::Mutex,
    telemetry,
};

/// The circuit breaker of one node of a store, which calls on many threads share.
///
/// While the breaker is open, its [prober](crate::remote::recovery) probes the node. Outside of a tokio
/// runtime there is no prober, and calls serve as probes.
#[derive(Debug)]
pub(in crate::remote) struct SharedBreaker {
    probed: Mutex<ProbedBreaker>,
    /// One of [`PASSES_ALL`], [`REJECTS_ALL`] and [`DECIDES`]. It is written under the lock and
    /// read without it, so a call may see a value that is just being replaced.
    gate: AtomicU8,
    slow: Duration,
    origin: Instant,
    node: NodeId,
    /// The number of breakers of the limiter that are not closed.
    not_closed: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct ProbedBreaker {
    breaker: Breaker,
    has_prober: bool,
    /// True if the prober's runtime has threads of its own. A current-thread runtime runs only
    /// while a caller blocks on it, so calls must check whether a probe is overdue.
    is_self_driven: bool,
    prober: Option<AbortHandle>,
}

/// The breaker is closed.
const PASSES_ALL: u8 = 0;
/// The breaker is open, and has a prober whose runtime runs by itself.
const REJECTS_ALL: u8 = 1;
/// The state machine decides about each call.
const DECIDES: u8 = 2;

/// The permit of a call that goes through. [`SharedBreaker::record`] takes it back.
#[derive(Debug, Clone, Copy)]
pub(in crate::remote) struct Permit {
    permission: Permission,
    start: Instant,
}

/// The next step of a breaker's prober.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::remote) enum NextStep {
    /// It sleeps until this time, and then asks again.
    SleepUntil(Instant),
    /// It sends a probe, which starts at this time.
    Probe(Instant),
    /// It ends: the breaker has closed, and no longer has a prober.
    End,
}

impl SharedBreaker {
    pub(super) fn new(config: BreakerConfig, node: NodeId, not_closed: Arc<AtomicUsize>) -> Self {
        telemetry::breaker_made();
        let probed = ProbedBreaker {
            breaker: Breaker::new(config),
            has_prober: false,
            is_self_driven: false,
            prober: None,
        };
        Self {
            probed: Mutex::new(probed),
            gate: AtomicU8::new(PASSES_ALL),
            slow: config.slow,
            origin: Instant::now(),
            node,
            not_closed,
        }
    }

    /// Returns the node whose breaker this is.
    pub(in crate::remote) fn node(&self) -> NodeId {
        self.node
    }

    /// Returns whether the breaker is open and its prober surely runs, so that no call goes
    /// through.
    ///
    /// This reads one atomic and takes no lock.
    #[inline]
    pub(in crate::remote) fn rejects_all(&self) -> bool {
        self.gate.load(Ordering::Relaxed) == REJECTS_ALL
    }

    /// Returns whether the breaker is open, in any runtime.
    pub(in crate::remote) fn is_open(&self) -> bool {
        let is_open = || {
            let state = self.lock().breaker.state();
            matches!(state, BreakerState::Open { .. } | BreakerState::Probing { .. })
        };
        self.gate.load(Ordering::Relaxed) != PASSES_ALL && is_open()
    }

    /// Requests a permit for a call that starts at `start`. Returns `None` if the call is rejected.
    ///
    /// An `urgent` call is not subject to the limit of calls in flight.
    pub(in crate::remote) fn try_acquire(&self, start: Instant, urgent: bool) -> Option<Permit> {
        let permission = match self.gate.load(Ordering::Relaxed) {
            PASSES_ALL => Permission::Unlimited,
            REJECTS_ALL => Permission::Rejected,
            _ => self.update(|probed, origin| probed.breaker.try_acquire(start - origin, urgent)),
        };
        (permission != Permission::Rejected).then_some(Permit { permission, start })
    }

    /// Requests a permit for a call that serves as the probe, because there is no prober or its
    /// probe is overdue. Returns `None` if no probe is due.
    pub(in crate::remote) fn try_probe(&self, start: Instant) -> Option<Permit> {
        let is_probe = self.update(|probed, origin| {
            let now = start.saturating_duration_since(origin);
            (!probed.has_prober && probed.breaker.try_probe(now))
                || probed.breaker.try_overdue_probe(now)
        });
        is_probe.then_some(Permit { permission: Permission::Probe, start })
    }

    /// Records the outcome of a call. Returns whether the breaker now needs a prober.
    pub(in crate::remote) fn record(
        &self,
        permit: Permit,
        now: Instant,
        outcome: CallOutcome,
    ) -> bool {
        self.update(|probed, origin| {
            let (now, start) = (now - origin, permit.start - origin);
            probed.breaker.record(now, (permit.permission, start), outcome, random::number);
            probed.needs_prober()
        })
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
        let now = Instant::now();
        self.update(|probed, origin| {
            let now = now - origin;
            probed.breaker.advance(now);
            match probed.breaker.state() {
                BreakerState::Closed => BreakerStatus::Closed,
                BreakerState::Open { until } => BreakerStatus::Open {
                    elapsed: now.saturating_sub(probed.breaker.opened_at()),
                    probe_after: until.saturating_sub(now),
                },
                BreakerState::Probing { .. } | BreakerState::HalfOpen { .. } => {
                    BreakerStatus::HalfOpen
                }
                BreakerState::Recovering { .. } => BreakerStatus::Recovering,
            }
        })
    }

    /// Returns the duration from which on a call counts as slow.
    pub(in crate::remote) fn slow(&self) -> Duration {
        self.slow
    }

    /// Claims the role of the prober for a task of `runtime`. Returns `false` if the breaker has a
    /// prober or needs none.
    pub(in crate::remote) fn claim_prober(&self, runtime: &Handle) -> bool {
        let is_self_driven = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        self.update(|probed, _| {
            let is_needed = probed.needs_prober();
            if is_needed {
                (probed.has_prober, probed.is_self_driven) = (true, is_self_driven);
            }
            is_needed
        })
    }

    /// Keeps the handle with which [`stop`](Self::stop) ends the prober.
    pub(in crate::remote) fn set_prober(&self, task: AbortHandle) {
        let mut probed = self.lock();
        if probed.has_prober {
            probed.prober = Some(task);
        }
    }

    /// Returns the next step of the prober.
    pub(in crate::remote) fn next_step(&self) -> NextStep {
        let now = Instant::now();
        self.update(|probed, origin| {
            probed.breaker.advance(now - origin);
            if probed.breaker.try_probe(now - origin) {
                return NextStep::Probe(now);
            }
            match probed.breaker.state() {
                BreakerState::Open { until } => NextStep::SleepUntil(saturating_add(origin, until)),
                // A call serves as the probe, so the prober waits for its outcome.
                BreakerState::Probing { .. } => {
                    NextStep::SleepUntil(saturating_add(now, self.slow))
                }
                BreakerState::HalfOpen { .. } | BreakerState::Recovering { .. } => {
                    let end = probed.breaker.ramp_end().unwrap_or_default();
                    NextStep::SleepUntil(saturating_add(origin, end))
                }
                BreakerState::Closed => {
                    probed.prober_ended();
                    NextStep::End
                }
            }
        })
    }

    /// Returns the permit of a probe that the prober starts at `start`.
    pub(in crate::remote) fn probe_permit(start: Instant) -> Permit {
        Permit { permission: Permission::Probe, start }
    }

    /// Records that the prober has ended. Its last `probe` gets `outcome` if it has none yet.
    pub(in crate::remote) fn prober_ended(&self, probe: Option<Permit>, outcome: CallOutcome) {
        self.update(|probed, origin| {
            if let Some(probe) = probe {
                let now = Instant::now() - origin;
                let permit = (probe.permission, probe.start - origin);
                probed.breaker.record(now, permit, outcome, random::number);
            }
            probed.prober_ended();
        });
    }

    /// Ends the prober.
    pub(in crate::remote) fn stop(&self) {
        // The lock is released before the abort, because the end of the task takes it again.
        let prober = self.lock().prober.take();
        if let Some(prober) = prober {
            prober.abort();
        }
    }

    fn is_slow(&self, time: Option<Duration>) -> bool {
        time.is_some_and(|time| time >= self.slow)
    }

    /// Calls `act` with the state machine, updates the gate, and reports a change of the state.
    fn update<T>(&self, act: impl FnOnce(&mut ProbedBreaker, Instant) -> T) -> T {
        let mut probed = self.lock();
        let before = probed.breaker.state();
        let result = act(&mut probed, self.origin);
        let after = probed.breaker.state();
        let gate = match after {
            BreakerState::Closed => PASSES_ALL,
            BreakerState::Open { .. } | BreakerState::Probing { .. }
                if probed.has_prober && probed.is_self_driven =>
            {
                REJECTS_ALL
            }
            _ => DECIDES,
        };
        self.gate.store(gate, Ordering::Relaxed);
        drop(probed);
        if before.name() != after.name() {
            self.count(before, after);
            telemetry::breaker_changed(before.name(), after.name(), self.node.number());
        }
        result
    }

    /// Counts a change of the state.
    fn count(&self, before: BreakerState, after: BreakerState) {
        // Wraps around if it falls.
        let not_closed = usize::from(after != BreakerState::Closed)
            .wrapping_sub(usize::from(before != BreakerState::Closed));
        self.not_closed.fetch_add(not_closed, Ordering::Relaxed);
        telemetry::breakers_opened(i8::from(after.is_open()) - i8::from(before.is_open()));
    }

    fn lock(&self) -> MutexGuard<'_, ProbedBreaker> {
        self.probed.lock()
    }
}

impl ProbedBreaker {
    fn needs_prober(&self) -> bool {
        !self.has_prober && self.breaker.state() != BreakerState::Closed
    }

    fn prober_ended(&mut self) {
        (self.has_prober, self.prober) = (false, None);
    }
}

impl Drop for SharedBreaker {
    fn drop(&mut self) {
        // The node has left the store, or the limiter has ended.
        self.count(self.lock().breaker.state(), BreakerState::Closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the state of the breaker, a replay would send its only charge of a key to a node that is down.
    #[tokio::test(flavor = "current_thread")]
    async fn a_breaker_is_open_also_if_its_prober_may_not_run() {
        let breaker = SharedBreaker::new(BreakerConfig::default(), NodeId::ONLY, Arc::default());
        assert!(!breaker.is_open());
        for _ in 0..100 {
            let now = Instant::now();
            if let Some(permit) = breaker.try_acquire(now, false) {
                breaker.record(permit, now, CallOutcome::Failure);
            }
        }
        assert!(breaker.is_open());
        assert!(breaker.claim_prober(&Handle::current()));
        assert!(!breaker.rejects_all(), "calls decide whether a probe is overdue");
        assert!(breaker.is_open());
    }
}
