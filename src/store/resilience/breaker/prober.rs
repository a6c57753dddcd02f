//! The task that probes the store while the breaker is open.

use std::{
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until, timeout_at},
};

use super::{CallOutcome, Permit, SharedBreaker, shared::NextStep};
use crate::store::{Answer, resilience::deadline::saturating_add};

/// The part of a limiter that its prober uses. The prober holds a weak handle only, so it ends
/// with the limiter.
pub(in crate::store::resilience) trait Probed:
    Send + Sync + 'static
{
    fn breaker(&self) -> Option<&SharedBreaker>;

    /// Sends the store a request that changes nothing, which has to be answered by the deadline.
    fn probe(&self, deadline: Instant) -> Answer;

    /// Returns how long a probe may take at most.
    fn probe_timeout(&self) -> Option<Duration>;

    /// Runs when the store has answered a probe.
    fn on_recovery(self: &Arc<Self>);
}

/// Starts the prober if the breaker needs it. There is none outside of a tokio runtime.
pub(in crate::store::resilience) fn start<P: Probed>(probed: &Arc<P>) {
    let Some(breaker) = probed.breaker() else { return };
    let Ok(runtime) = Handle::try_current() else { return };
    if breaker.attend(&runtime) {
        // If the runtime is shutting down, the guard is dropped at once and the breaker left alone.
        let prober = Prober { probed: Arc::downgrade(probed), probe: None };
        breaker.keep_attendant(runtime.spawn(prober.run()).abort_handle());
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
                    // By now the breaker may have another attendant.
                    self.probed = Weak::new();
                    return;
                }
            }
        }
    }

    /// Returns `None` when the limiter has ended.
    fn next_step(&self) -> Option<NextStep> {
        Some(self.probed.upgrade()?.breaker()?.next_step())
    }

    async fn probe(&mut self, start: Instant) {
        let permit = SharedBreaker::probe_permit(start);
        self.probe = Some(permit);
        let Some((deadline, answer)) = self.send(start) else { return };
        let reply = timeout_at(deadline, answer).await;
        let Some(probed) = self.probed.upgrade() else { return };
        let Some(breaker) = probed.breaker() else { return };
        let now = Instant::now();
        let outcome = match &reply {
            Ok(reply) => match breaker.judge(permit, now, reply) {
                // A store that wraps another one may take no policies but its own, and refuse the
                // probe as such. Calls then have to show whether it works.
                CallOutcome::Unknown => CallOutcome::Success,
                outcome => outcome,
            },
            Err(_) => CallOutcome::Failure,
        };
        self.probe = None;
        breaker.record(permit, now, outcome);
        if outcome == CallOutcome::Success {
            probed.on_recovery();
        }
    }

    /// Sends the probe. The handle to the limiter is not kept while the answer is awaited.
    fn send(&self, start: Instant) -> Option<(Instant, Answer)> {
        let probed = self.probed.upgrade()?;
        // A probe that is slow has failed, so there is no need to wait for longer.
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
            // A runtime that ends has given the probe up. A store that panics has failed.
            let outcome = match thread::panicking() {
                true => CallOutcome::Failure,
                false => CallOutcome::Unknown,
            };
            breaker.leave(self.probe.take(), outcome);
        }
    }
}
