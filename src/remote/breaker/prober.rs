//! The task that probes a node of the store while its breaker is open.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{CallOutcome, Permit, SharedBreaker, shared::NextStep};
use crate::{
    decision::StoreReply,
    error::{Error, ErrorKind},
    runtime::{Elapsed, TimeLimit, runtime_with_timer, saturating_add},
    store::{Answer, NodeId},
    telemetry,
};

/// The part of a limiter that its prober uses. The prober holds only a weak handle to it, so it
/// ends with the limiter.
pub(in crate::remote) trait Probed: Send + Sync + 'static {
    /// Sends a node a probe, which must be answered by `deadline`. Returns `None` if the node has
    /// left the store.
    fn probe(&self, node: NodeId, deadline: Instant) -> Option<Answer>;

    /// Returns the time that the store has taken for a probe since `start`, or `None` if it cannot
    /// be measured.
    fn probe_time(&self, start: Instant) -> Option<Duration>;

    /// Returns the longest time that a probe may take, or `None` for the breaker's own limit.
    fn probe_timeout(&self) -> Option<Duration>;

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

/// Reports the failure of a probe. Without it, an outage would have no cause in the log while the
/// breaker is open.
fn report(reply: &Result<Result<StoreReply, Error>, Elapsed>) {
    match reply {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if !error.is_unavailable() => {}
        Ok(Err(error)) => telemetry::store_failed(error),
        Err(_) => {
            let message = "the store did not answer the probe by the deadline";
            telemetry::store_failed(&Error::new(ErrorKind::Unavailable, message));
        }
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
        let (deadline, mut answer) = self.send(start)?;
        let reply = TimeLimit::at(deadline).wait(Pin::new(&mut answer)).await;
        let probed = self.probed.upgrade()?;
        report(&reply);
        let outcome = match &reply {
            Ok(reply) => match self.breaker.judge(reply, probed.probe_time(start)) {
                // A store that wraps another one may reject the policy of the probe. Calls then
                // have to show whether the store works.
                CallOutcome::Unknown => CallOutcome::Success,
                outcome => outcome,
            },
            Err(_) => CallOutcome::Failure,
        };
        self.probe = None;
        self.breaker.record(permit, Instant::now(), outcome);
        if outcome == CallOutcome::Success {
            probed.on_recovery();
        }
        Some(())
    }

    /// Sends the probe. The handle to the limiter is not kept while the answer is awaited.
    fn send(&self, start: Instant) -> Option<(Instant, Answer)> {
        let probed = self.probed.upgrade()?;
        // A slow probe counts as failed, so without a deadline it need not wait for longer.
        let timeout = probed.probe_timeout().unwrap_or(self.breaker.slow());
        let deadline = saturating_add(start, timeout);
        Some((deadline, probed.probe(self.breaker.node(), deadline)?))
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
