//! The breaker as calls on many threads share it.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
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
    store::{BreakerStatus, resilience::deadline::saturating_add},
    telemetry,
};

/// A circuit breaker that calls on many threads share.
///
/// A task that probes the store while the breaker is open is its *attendant*. Without one, because
/// there is no tokio runtime, calls are the probes.
#[derive(Debug)]
pub(in crate::store::resilience) struct SharedBreaker {
    attended: Mutex<Attended>,
    /// One of [`PASSES_ALL`], [`REJECTS_ALL`] and [`DECIDES`]. It is written under the lock and read
    /// without it, so a call may see the value that it has just had.
    gate: AtomicU8,
    slow: Duration,
    origin: Instant,
}

#[derive(Debug)]
struct Attended {
    breaker: Breaker,
    has_attendant: bool,
    /// The attendant's runtime has threads of its own. Any other runtime may only run while a caller
    /// waits for something, so calls then look whether a probe is overdue.
    is_self_driven: bool,
    attendant: Option<AbortHandle>,
}

/// The breaker is closed.
const PASSES_ALL: u8 = 0;
/// The breaker is open, and has an attendant that surely runs.
const REJECTS_ALL: u8 = 1;
/// The state machine decides about each call.
const DECIDES: u8 = 2;

/// A call that the breaker has let through. [`SharedBreaker::record`] takes it back.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::resilience) struct Permit {
    permission: Permission,
    start: Instant,
}

/// The next step of a breaker's attendant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    /// It sleeps, and asks again.
    SleepUntil(Instant),
    /// It probes the store.
    Probe(Instant),
    /// It ends: the breaker has closed, and has no attendant any more.
    End,
}

impl SharedBreaker {
    pub(in crate::store::resilience) fn new(config: BreakerConfig) -> Self {
        telemetry::breaker_made();
        let attended = Attended {
            breaker: Breaker::new(config),
            has_attendant: false,
            is_self_driven: false,
            attendant: None,
        };
        Self {
            attended: Mutex::new(attended),
            gate: AtomicU8::new(PASSES_ALL),
            slow: config.slow,
            origin: Instant::now(),
        }
    }

    /// Returns whether the breaker is open and probed by its attendant, so that no call goes
    /// through. Costs one load.
    #[inline]
    pub(in crate::store::resilience) fn rejects_all(&self) -> bool {
        self.gate.load(Ordering::Relaxed) == REJECTS_ALL
    }

    /// Asks for a call that starts now. An `urgent` call is not subject to the limit of calls in
    /// flight.
    pub(in crate::store::resilience) fn try_acquire(
        &self,
        start: Instant,
        urgent: bool,
    ) -> Option<Permit> {
        let permission = match self.gate.load(Ordering::Relaxed) {
            PASSES_ALL => Permission::Unlimited,
            REJECTS_ALL => Permission::Rejected,
            _ => self.update(|it, origin| it.breaker.try_acquire(start - origin, urgent)),
        };
        (permission != Permission::Rejected).then_some(Permit { permission, start })
    }

    /// Asks for a probe that starts now, in place of an attendant: there is none, or its probe is
    /// overdue.
    pub(in crate::store::resilience) fn try_probe(&self, start: Instant) -> Option<Permit> {
        let is_probe = self.update(|it, origin| {
            let now = start.saturating_duration_since(origin);
            (!it.has_attendant && it.breaker.try_probe(now)) || it.breaker.try_overdue_probe(now)
        });
        is_probe.then_some(Permit { permission: Permission::Probe, start })
    }

    /// Records how a call ended. Returns whether the breaker is now open without an attendant.
    pub(in crate::store::resilience) fn record(
        &self,
        permit: Permit,
        now: Instant,
        outcome: CallOutcome,
    ) -> bool {
        self.update(|it, origin| {
            let (now, start) = (now - origin, permit.start - origin);
            it.breaker.record(now, (permit.permission, start), outcome, random::number);
            it.needs_attendant()
        })
    }

    /// Returns what the reply to a call says about the store.
    pub(in crate::store::resilience) fn judge(
        &self,
        permit: Permit,
        now: Instant,
        reply: &Result<StoreReply, Error>,
    ) -> CallOutcome {
        match reply {
            // The store was not asked.
            Err(error) if !error.is_unavailable() => CallOutcome::Unknown,
            // Only this one key is unusable: the store itself works.
            Err(error) if error.kind() != ErrorKind::WrongType => CallOutcome::Failure,
            _ if self.is_slow(permit, now) => CallOutcome::Failure,
            _ => CallOutcome::Success,
        }
    }

    /// Returns what a call says about the store whose caller stopped waiting for the answer.
    pub(in crate::store::resilience) fn judge_abandoned(
        &self,
        permit: Permit,
        now: Instant,
    ) -> CallOutcome {
        if self.is_slow(permit, now) { CallOutcome::Failure } else { CallOutcome::Unknown }
    }

    /// Returns the state for [`Status`](crate::store::Status).
    pub(in crate::store::resilience) fn status(&self) -> BreakerStatus {
        let now = Instant::now();
        self.update(|it, origin| {
            let now = now - origin;
            it.breaker.advance(now);
            match it.breaker.state() {
                BreakerState::Closed => BreakerStatus::Closed,
                BreakerState::Open { until } => BreakerStatus::Open {
                    elapsed: now.saturating_sub(it.breaker.opened_at()),
                    probe_after: until.saturating_sub(now),
                },
                BreakerState::Probing { .. } | BreakerState::HalfOpen { .. } => {
                    BreakerStatus::HalfOpen
                }
                BreakerState::Recovering { .. } => BreakerStatus::Recovering,
            }
        })
    }

    /// Returns the time from which on a call counts as slow.
    pub(super) fn slow(&self) -> Duration {
        self.slow
    }

    /// Makes a task of this runtime the attendant. Returns `false` if there is one, or none is
    /// needed.
    pub(super) fn attend(&self, runtime: &Handle) -> bool {
        let is_self_driven = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        self.update(|it, _| {
            let is_needed = it.needs_attendant();
            if is_needed {
                (it.has_attendant, it.is_self_driven) = (true, is_self_driven);
            }
            is_needed
        })
    }

    /// Keeps the handle with which [`stop`](Self::stop) ends the attendant.
    pub(super) fn keep_attendant(&self, task: AbortHandle) {
        let mut attended = self.lock();
        if attended.has_attendant {
            attended.attendant = Some(task);
        }
    }

    /// Decides what the attendant does next.
    pub(super) fn next_step(&self) -> NextStep {
        let now = Instant::now();
        self.update(|it, origin| {
            it.breaker.advance(now - origin);
            if it.breaker.try_probe(now - origin) {
                return NextStep::Probe(now);
            }
            match it.breaker.state() {
                BreakerState::Open { until } => NextStep::SleepUntil(saturating_add(origin, until)),
                // A call is the probe.
                BreakerState::Probing { .. } => {
                    NextStep::SleepUntil(saturating_add(now, self.slow))
                }
                BreakerState::HalfOpen { .. } | BreakerState::Recovering { .. } => {
                    let end = it.breaker.ramp_end().unwrap_or_default();
                    NextStep::SleepUntil(saturating_add(origin, end))
                }
                BreakerState::Closed => {
                    it.leave();
                    NextStep::End
                }
            }
        })
    }

    /// Returns the permit of the attendant's probe.
    pub(super) fn probe_permit(start: Instant) -> Permit {
        Permit { permission: Permission::Probe, start }
    }

    /// Records that the attendant has ended, for whatever reason. A probe of its own that has not
    /// ended gets this outcome.
    pub(super) fn leave(&self, probe: Option<Permit>, outcome: CallOutcome) {
        self.update(|it, origin| {
            if let Some(probe) = probe {
                let now = Instant::now() - origin;
                let permit = (probe.permission, probe.start - origin);
                it.breaker.record(now, permit, outcome, random::number);
            }
            it.leave();
        });
    }

    /// Ends the attendant.
    pub(in crate::store::resilience) fn stop(&self) {
        // Apart: the task's end takes the lock.
        let attendant = self.lock().attendant.take();
        if let Some(attendant) = attendant {
            attendant.abort();
        }
    }

    fn is_slow(&self, permit: Permit, now: Instant) -> bool {
        now.saturating_duration_since(permit.start) >= self.slow
    }

    /// Acts on the state machine, and reports a change of its state once.
    fn update<T>(&self, act: impl FnOnce(&mut Attended, Instant) -> T) -> T {
        let mut attended = self.lock();
        let before = attended.breaker.state();
        let result = act(&mut attended, self.origin);
        let after = attended.breaker.state();
        let gate = match after {
            BreakerState::Closed => PASSES_ALL,
            BreakerState::Open { .. } | BreakerState::Probing { .. }
                if attended.has_attendant && attended.is_self_driven =>
            {
                REJECTS_ALL
            }
            _ => DECIDES,
        };
        self.gate.store(gate, Ordering::Relaxed);
        drop(attended);
        if before.name() != after.name() {
            telemetry::breaker_changed(before.name(), after.name(), after.number());
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Attended> {
        self.attended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attended {
    fn needs_attendant(&self) -> bool {
        !self.has_attendant && self.breaker.state() != BreakerState::Closed
    }

    fn leave(&mut self) {
        (self.has_attendant, self.attendant) = (false, None);
    }
}
