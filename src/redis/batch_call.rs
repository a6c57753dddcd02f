//! The call of one batch, and the distribution of its reply to the checks.

use std::{
    mem,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use super::{
    batch::CallInFlight,
    error::Failure,
    reply::CallReply,
    script::ScriptCall,
    sent_flag::SentFlag,
    slot_queue::{BatchOutcome, PendingCheck},
    wire::Operation,
};

/// A batch that has not taken its checks from the queue yet.
pub(super) struct BatchCall {
    in_flight: CallInFlight,
    has_checks: bool,
}

impl BatchCall {
    pub(super) fn new(in_flight: CallInFlight) -> Self {
        Self { in_flight, has_checks: false }
    }

    /// Sends the batch, and sends each check its outcome.
    ///
    /// The checks stay in the queue until there is a connection. A check that times out in the
    /// queue is removed, and so is certainly not charged.
    pub(super) async fn run(mut self) {
        let (batcher, slot) = (self.in_flight.batcher.clone(), self.in_flight.slot);
        let ready = batcher.backend().ready(slot).await;
        let checks = self.take_checks();
        let Some(test_time) = checks.first().map(|first| first.test_time) else { return };
        let (checks, outcomes): (Vec<_>, Vec<_>) =
            checks.into_iter().map(|pending| (pending.check, pending.outcome)).unzip();
        if let Err(failure) = ready {
            drop(self);
            return send_all(outcomes, || BatchOutcome::Decided(Err(failure.clone())));
        }
        let sent_flag = SentFlag::default();
        let call = ScriptCall::new(Operation::Acquire, &checks, test_time, &sent_flag);
        let reply = pin!(batcher.backend().run(slot, &call));
        let (result, outcomes) = WhileAwaited { call: reply, outcomes }.await;
        // This drop ends the call in flight, so the next batch is sent before the outcomes are.
        drop(self);
        if let Some(result) = result {
            send_outcomes(outcomes, result);
        }
    }

    fn take_checks(&mut self) -> Vec<PendingCheck> {
        self.has_checks = true;
        let mut checks = self.in_flight.batcher.take_batch(self.in_flight.slot);
        checks.retain(|pending| !pending.outcome.is_closed());
        checks
    }
}

impl Drop for BatchCall {
    fn drop(&mut self) {
        if !self.has_checks {
            // The batch was not sent, because the runtime has ended or there is none.
            let checks = self.take_checks().into_iter();
            let outcomes = checks.map(|pending| pending.outcome).collect();
            send_all(outcomes, || BatchOutcome::Decided(Err(Failure::Dropped)));
        }
    }
}

/// Sends each check of a batch its part of the reply.
fn send_outcomes(outcomes: Vec<oneshot::Sender<BatchOutcome>>, result: Result<CallReply, Failure>) {
    match result {
        Ok(replies) => {
            let mut replies = replies.into_iter();
            send_all(outcomes, || match replies.next().flatten() {
                Some(reply) => BatchOutcome::Decided(Ok(reply)),
                None => BatchOutcome::Undecided,
            });
        }
        Err(failure) if failure.may_spare_single_checks() => {
            send_all(outcomes, || BatchOutcome::Undecided);
        }
        Err(failure) => send_all(outcomes, || BatchOutcome::Decided(Err(failure.clone()))),
    }
}

fn send_all(
    outcomes: Vec<oneshot::Sender<BatchOutcome>>,
    mut outcome: impl FnMut() -> BatchOutcome,
) {
    for sender in outcomes {
        // A check that was dropped does not need its outcome.
        let _ = sender.send(outcome());
    }
}

/// A future of a call that ends early when all of its checks were dropped.
struct WhileAwaited<'f, F> {
    call: Pin<&'f mut F>,
    outcomes: Vec<oneshot::Sender<BatchOutcome>>,
}

impl<F: Future> Future for WhileAwaited<'_, F> {
    /// The result, or `None` if all checks were dropped, and the senders of the outcomes.
    type Output = (Option<F::Output>, Vec<oneshot::Sender<BatchOutcome>>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Poll::Ready(result) = this.call.as_mut().poll(cx) {
            return Poll::Ready((Some(result), mem::take(&mut this.outcomes)));
        }
        // The call continues while any check waits, so only the last one is polled. Its drop wakes
        // this task.
        while let Some(last) = this.outcomes.last_mut() {
            if last.poll_closed(cx).is_pending() {
                return Poll::Pending;
            }
            this.outcomes.pop();
        }
        Poll::Ready((None, Vec::new()))
    }
}
