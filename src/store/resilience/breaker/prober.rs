//! The task that probes the store while the breaker is open.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until},
};

use super::{CallOutcome, Permit, SharedBreaker, shared::NextStep};
use crate::store::{
    Answer,
    scheduling::{TimeLimit, saturating_add},
};

/// The part of a limiter that its prober uses. The prober holds only a weak handle to it, so it
/// ends with the limiter.
pub(in crate::store::resilience) trait Probed:
    Send + Sync + 'static
{
    /// Returns the breaker, if there is one.
    fn breaker(&self) -> Option<&SharedBreaker>;

    /// Sends the store a request that changes nothing and must be answered by `deadline`.
    fn probe(&self, deadline: Instant) -> Answer;

    /// Returns the time that the store has taken for a probe since `start`, or `None` if it cannot
    /// be measured.
    fn probe_time(&self, start: Instant) -> Option<Duration>;

    /// Returns the longest time that a probe may take, or `None` for the breaker's own limit.
    fn probe_timeout(&self) -> Option<Duration>;

    /// Handles the recovery of the store, after a probe has succeeded.
    fn on_recovery(self: &Arc<Self>);
}

/// Starts the prober if the breaker needs one. It does nothing outside of a tokio runtime.
pub(in crate::store::resilience) fn start<P: Probed>(probed: &Arc<P>) {
    let Some(breaker) = probed.breaker() else { return };
    let Ok(runtime) = Handle::try_current() else { return };
    if breaker.claim_prober(&runtime) {
        // If the runtime is shutting down, it drops the prober at once, and the drop says so to the
        // breaker.
        let prober = Prober { probed: Arc::downgrade(probed), probe: None };
        breaker.set_prober(runtime.spawn(prober.run()).abort_handle());
    }
}

struct Prober<P: Probed> {
    probed: Weak<P>,
    /// The probe in flight.
    probe: Option<Permit>,
}

impl<P: Probed> Prober<P> {
    async fn run(mut self) {
        while let Some(step) = self.next_step() {
            match step {
                NextStep::SleepUntil(time) => sleep_until(time).await,
                NextStep::Probe(start) => self.probe(start).await,
                NextStep::End => {
                    // The breaker may have another prober by now, which the drop must not end.
                    self.probed = Weak::new();
                    return;
                }
            }
        }
    }

    /// Returns the next step, or `None` when the limiter has ended.
    fn next_step(&self) -> Option<NextStep> {
        Some(self.probed.upgrade()?.breaker()?.next_step())
    }

    async fn probe(&mut self, start: Instant) {
        let permit = SharedBreaker::probe_permit(start);
        self.probe = Some(permit);
        let Some((deadline, mut answer)) = self.send(start) else { return };
        let reply = TimeLimit::at(deadline).wait(Pin::new(&mut answer)).await;
        let Some(probed) = self.probed.upgrade() else { return };
        let Some(breaker) = probed.breaker() else { return };
        let outcome = match &reply {
            Ok(reply) => match breaker.judge(reply, probed.probe_time(start)) {
                // A store that wraps another one may reject the policy of the probe. Calls then
                // have to show whether the store works.
                CallOutcome::Unknown => CallOutcome::Success,
                outcome => outcome,
            },
            Err(_) => CallOutcome::Failure,
        };
        self.probe = None;
        breaker.record(permit, Instant::now(), outcome);
        if outcome == CallOutcome::Success {
            probed.on_recovery();
        }
    }

    /// Sends the probe. The handle to the limiter is not kept while the answer is awaited.
    fn send(&self, start: Instant) -> Option<(Instant, Answer)> {
        let probed = self.probed.upgrade()?;
        // A slow probe counts as failed, so without a deadline it need not wait for longer.
        let timeout = probed.probe_timeout().unwrap_or(probed.breaker()?.slow());
        let deadline = saturating_add(start, timeout);
        Some((deadline, probed.probe(deadline)))
    }
}

impl<P: Probed> Drop for Prober<P> {
    fn drop(&mut self) {
        if let Some(probed) = self.probed.upgrade()
            && let Some(breaker) = probed.breaker()
        {
            // A runtime that ends gives the probe up. A store that panics has failed.
            let outcome = match thread::panicking() {
                true => CallOutcome::Failure,
                false => CallOutcome::Unknown,
            };
            breaker.prober_ended(self.probe.take(), outcome);
        }
    }
}
