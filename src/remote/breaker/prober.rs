//! The task that probes a node of the store while its breaker is open.

use std::{
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{CallOutcome, Permit, SharedBreaker, shared::NextStep};
use crate::{runtime::runtime_with_timer, store::Answer, telemetry};

/// The part of a limiter that its prober uses. The prober holds only a weak handle to it, so it
/// ends with the limiter.
pub(in crate::remote) trait Probed: Send + Sync + 'static {
    /// Sends a probe to the node of a breaker. The answer is an error after the longest time that a
    /// probe may take. Returns `None` if the node has left the store.
    fn probe(&self, breaker: &SharedBreaker) -> Option<Answer>;

    /// Returns the time that the store has taken for a probe since `start`, or `None` if it cannot
    /// be measured.
    fn probe_time(&self, start: Instant) -> Option<Duration>;

    /// Handles the recovery of the store, after a probe has succeeded.
    fn on_recovery(self: &Arc<Self>);
}

/// Starts the prober of a breaker if it needs one. It does nothing outside of a tokio
/// runtime with timers.
pub(in crate::remote) fn start<P: Probed>(probed: &Arc<P>, breaker: &Arc<SharedBreaker>) {
    let Some(runtime) = runtime_with_timer() else { return };
    if breaker.claim_prober(&runtime) {
        // If the runtime is shutting down, it drops the prober at once, and the drop says so to the
        // breaker.
        let prober = Prober {
            probed: Arc::downgrade(probed),
            breaker: Arc::clone(breaker),
            probe: None,
            has_ended: false,
        };
        breaker.set_prober(runtime.spawn(prober.run()).abort_handle());
    }
}

struct Prober<P: Probed> {
    probed: Weak<P>,
    breaker: Arc<SharedBreaker>,
    /// The probe in flight.
    probe: Option<Permit>,
    /// The breaker has closed. It may have another prober by now, which the drop must not end.
    has_ended: bool,
}

impl<P: Probed> Prober<P> {
    /// Probes the node until the breaker closes, the node leaves the store, or the limiter ends.
    async fn run(mut self) {
        while !self.has_ended && self.probed.strong_count() > 0 {
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
        let answer = self.probed.upgrade()?.probe(&self.breaker)?;
        let reply = answer.await;
        let probed = self.probed.upgrade()?;
        if let Err(error) = &reply
            && error.is_unavailable()
        {
            // Without this event, an outage would have no cause in the log while the breaker is open.
            telemetry::store_failed(error);
        }
        let outcome = match self.breaker.judge(&reply, probed.probe_time(start)) {
            // A store that wraps another one may reject the policy of the probe. Calls then have to
            // show whether the store works.
            CallOutcome::Unknown => CallOutcome::Success,
            outcome => outcome,
        };
        self.probe = None;
        self.breaker.record(permit, Instant::now(), outcome);
        if outcome == CallOutcome::Success {
            probed.on_recovery();
        }
        Some(())
    }
}

impl<P: Probed> Drop for Prober<P> {
    fn drop(&mut self) {
        if !self.has_ended {
            // A runtime that ends gives the probe up. A store that panics has failed.
            let outcome = match thread::panicking() {
                true => CallOutcome::Failure,
                false => CallOutcome::Unknown,
            };
            self.breaker.prober_ended(self.probe.take(), outcome);
        }
    }
}
