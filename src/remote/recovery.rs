//! The recovery of the store: the task that probes a node while its breaker is open, and the task that charges
//! the backlog of the fallback once the store answers again.
//!
//! Both tasks hold only a weak handle to the guarded store while they wait, so they end with the limiter.

use std::{
    slice,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    time::{Instant, sleep, sleep_until},
};

use super::{
    breaker::{CallOutcome, SharedBreaker},
    guarded::{Guarded, Guards, Origin, deadline_in},
};
use crate::{
    decision::StoreReply,
    error::Error,
    store::{Answer, Request},
    telemetry,
};

/// The time between two rounds of a replay while the breaker of a node is open.
const REPLAY_INTERVAL: Duration = Duration::from_secs(1);

impl Guarded {
    /// Starts the prober of a breaker, unless it is running.
    pub(super) fn start_prober(&self, breaker: &Arc<SharedBreaker>) {
        breaker.prober.start(|| probe_until_closed(Arc::downgrade(&self.0), Arc::clone(breaker)));
    }

    /// Starts to charge the [backlog](Guards::has_backlog) of the fallback to the store, unless a task does so.
    pub(super) fn start_replay(&self) {
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

    /// Charges the backlog to the store. Returns whether the store has answered.
    async fn replay_backlog(&self) -> bool {
        let Some(fallback) = &self.fallback else { return true };
        let breakers = self.breakers.as_ref();
        fallback
            .replay(
                |charge| breakers.is_some_and(|it| it.is_open(&*self.store, charge)),
                |charges| self.call(Request::Force(charges), Origin::Task, self.deadline),
            )
            .await
    }

    /// Sends a probe to the node of a breaker. Returns `None` if the node has left the store.
    fn probe(&self, breaker: &SharedBreaker) -> Option<Answer> {
        let Some(charge) = breaker.node().probe(|charge| self.store.node(charge)) else {
            // No key depends on the node, so it has left the store.
            if let Some(breakers) = &self.breakers {
                breakers.remove(breaker.node());
            }
            return None;
        };
        // A slow probe counts as failed, so without a deadline it need not wait for longer.
        let limit = self.deadline.unwrap_or(breaker.slow());
        let request = Request::Force(slice::from_ref(&charge));
        Some(self.call_store(request, deadline_in(Instant::now(), limit)))
    }

    /// Returns the outcome of a probe.
    fn judge_probe(
        &self,
        breaker: &SharedBreaker,
        start: Instant,
        reply: &Result<StoreReply, Error>,
    ) -> CallOutcome {
        if let Err(error) = reply
            && error.is_unavailable()
        {
            // Without this event, an outage would have no cause in the log while the breaker is open.
            telemetry::store_failed(error);
        }
        match breaker.judge(reply, self.store_time(start, Instant::now())) {
            // A store that wraps another one may reject the policy of the probe. Calls then have to
            // show whether the store works.
            CallOutcome::Unknown => CallOutcome::Success,
            outcome => outcome,
        }
    }
}

/// Probes the node of a breaker until the breaker closes, the node leaves the store, or the limiter ends.
async fn probe_until_closed(guards: Weak<Guards>, breaker: Arc<SharedBreaker>) {
    // A current-thread runtime runs only while a caller blocks on it, so calls decide whether a probe is late.
    let is_self_driven = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    let _is_probed = is_self_driven.then(|| breaker.is_probed.set());
    while let Some(time) = breaker.next_probe() {
        sleep_until(time).await;
        let Some(guarded) = guards.upgrade().map(Guarded) else { return };
        let start = Instant::now();
        let Some(permit) = breaker.try_probe(start) else { continue };
        let Some(answer) = guarded.probe(&breaker) else { return };
        // The handle to the limiter is not kept while the answer is awaited.
        drop(guarded);
        let reply = answer.await;
        let Some(guarded) = guards.upgrade().map(Guarded) else { return };
        let outcome = guarded.judge_probe(&breaker, start, &reply);
        breaker.record(permit, Instant::now(), outcome);
        if outcome == CallOutcome::Success && guarded.has_backlog() {
            guarded.start_replay();
        }
    }
}
