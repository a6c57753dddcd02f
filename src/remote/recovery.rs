//! The recovery of the store: the task that probes a node while its breaker is open, and the task that charges
//! the backlog of the fallback once the store answers again.
//!
//! Both tasks hold only a weak handle to the guarded store while they wait, so they end with the limiter.

use std::{
    slice,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use tokio::time::{Instant, sleep, sleep_until};

use super::{
    breaker::{CallOutcome, NextStep, Permit, SharedBreaker},
    guarded::{Deadline, Guarded, Guards, Origin},
};
use crate::{
    policy::Charge,
    runtime::runtime_with_timer,
    store::{Answer, Request},
    telemetry,
};

/// The time between two rounds of a replay while the breaker of a node is open.
const REPLAY_INTERVAL: Duration = Duration::from_secs(1);

impl Guarded {
    /// Starts the prober of a breaker if it needs one. It does nothing outside of a tokio
    /// runtime with timers.
    pub(super) fn start_prober(&self, breaker: &Arc<SharedBreaker>) {
        let Some(runtime) = runtime_with_timer() else { return };
        if breaker.claim_prober(&runtime) {
            // If the runtime is shutting down, it drops the prober at once, and the drop says so to the
            // breaker.
            let prober = Prober {
                guards: Arc::downgrade(&self.0),
                breaker: Arc::clone(breaker),
                probe: None,
                has_ended: false,
            };
            breaker.set_prober(runtime.spawn(prober.run()).abort_handle());
        }
    }

    /// Starts to charge the backlog of the fallback to the store, if there is any.
    #[inline]
    pub(super) fn start_replay(&self) {
        if self.has_backlog() {
            let weak = Arc::downgrade(&self.0);
            self.replay.start(|| async move {
                while let Some(guarded) = weak.upgrade().map(Self) {
                    if !guarded.replay_backlog().await || !guarded.has_backlog() {
                        return;
                    }
                    // The breaker of a node is open.
                    drop(guarded);
                    sleep(REPLAY_INTERVAL).await;
                }
            });
        }
    }

    fn has_backlog(&self) -> bool {
        self.fallback.as_ref().is_some_and(|fallback| !fallback.backlog().is_empty())
    }

    /// Charges the backlog to the store. Returns whether the store has answered.
    async fn replay_backlog(&self) -> bool {
        let Some(fallback) = &self.fallback else { return true };
        let is_rejected = |charge: &Charge<'_>| {
            self.breakers.as_ref().is_some_and(|breakers| breakers.is_open(&*self.store, charge))
        };
        let send = |charges: &[Charge<'_>]| {
            self.call(Request::Force(charges), Origin::Replay, self.deadline)
        };
        fallback.replay(is_rejected, send).await
    }

    /// Sends a probe to the node of a breaker. Returns `None` if the node has left the store.
    fn probe(&self, breaker: &SharedBreaker) -> Option<Answer> {
        let (store, node) = (&*self.store, breaker.node());
        let Some(charge) = node.probe(|charge| store.node(charge)) else {
            // No key depends on the node, so it has left the store.
            if let Some(breakers) = &self.breakers {
                breakers.remove(node);
            }
            return None;
        };
        // A slow probe counts as failed, so without a deadline it need not wait for longer.
        let limit = self.deadline.unwrap_or(breaker.slow());
        let request = Request::Force(slice::from_ref(&charge));
        Some(self.call_store(request, Deadline::new(limit)))
    }
}

struct Prober {
    guards: Weak<Guards>,
    breaker: Arc<SharedBreaker>,
    /// The probe in flight.
    probe: Option<Permit>,
    /// The breaker has closed. It may have another prober by now, which the drop must not end.
    has_ended: bool,
}

impl Prober {
    /// Probes the node until the breaker closes, the node leaves the store, or the limiter ends.
    async fn run(mut self) {
        while !self.has_ended && self.guards.strong_count() > 0 {
            match self.breaker.next_step() {
                NextStep::SleepUntil(time) => sleep_until(time).await,
                NextStep::Probe(start) => {
                    if self.probe(start).await.is_none() {
                        return;
                    }
                }
                NextStep::End => self.has_ended = true,
            }
        }
    }

    /// Probes the node. Returns `None` if it has left the store, or if the limiter has ended.
    async fn probe(&mut self, start: Instant) -> Option<()> {
        let permit = SharedBreaker::probe_permit(start);
        self.probe = Some(permit);
        // The handle to the limiter is not kept while the answer is awaited.
        let answer = self.guards.upgrade().map(Guarded)?.probe(&self.breaker)?;
        let reply = answer.await;
        let guarded = self.guards.upgrade().map(Guarded)?;
        if let Err(error) = &reply
            && error.is_unavailable()
        {
            // Without this event, an outage would have no cause in the log while the breaker is open.
            telemetry::store_failed(error);
        }
        let outcome = match self.breaker.judge(&reply, guarded.store_time(start)) {
            // A store that wraps another one may reject the policy of the probe. Calls then have to
            // show whether the store works.
            CallOutcome::Unknown => CallOutcome::Success,
            outcome => outcome,
        };
        self.probe = None;
        self.breaker.record(permit, Instant::now(), outcome);
        if outcome == CallOutcome::Success {
            guarded.start_replay();
        }
        Some(())
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        if !self.has_ended {
            // A runtime that ends gives the probe up. A store that panics has failed.
            let outcome =
                if thread::panicking() { CallOutcome::Failure } else { CallOutcome::Unknown };
            self.breaker.prober_ended(self.probe.take(), outcome);
        }
    }
}
