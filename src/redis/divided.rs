//! Requests that several parts of a store decide, one after the other: the slots of a cluster.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
};

use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::{
    decision::StoreReply,
    error::{Effect, Error, ErrorKind},
    runtime::{TimeLimit, runtime_with_timer},
    store::Answer,
    telemetry,
};

/// A request that several parts decide.
pub(super) trait Divided: Send + Sized + 'static {
    /// One of the parts.
    type Part: Copy + Send;

    /// Returns the part to ask next, or `None` if the request is decided.
    fn next_part(&self) -> Option<Self::Part>;

    /// Asks a part, and keeps its reply.
    fn ask(&mut self, part: Self::Part) -> impl Future<Output = PartOutcome> + Send;

    /// Starts the refunds of what the parts have spent for a check that is not admitted. Each refund is
    /// tried once, because a second try might refund twice.
    fn undo(&mut self) -> Refunds<Self::Part>;

    /// Completes the reply of a check that a part has denied.
    fn complete_denial(
        &mut self,
        _refunds: &mut Refunds<Self::Part>,
    ) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Returns the longest time that the caller of a failed request waits for the refunds.
    fn refund_limit(&self) -> Option<TimeLimit>;

    fn reply(&mut self) -> Result<StoreReply, Error>;

    /// Asks the parts in turn, and sends the reply to the caller. If a part denies or fails, the parts
    /// before it refund what they have spent.
    fn run(mut self, caller: Caller) -> impl Future<Output = ()> + Send {
        async move {
            while let Some(part) = self.next_part() {
                let outcome = self.ask(part).await;
                if matches!(outcome, PartOutcome::Continue) {
                    continue;
                }
                let mut refunds = self.undo();
                match outcome {
                    PartOutcome::Continue => {}
                    PartOutcome::Denied(late) => {
                        self.complete_denial(&mut refunds).await;
                        caller.send(self.reply());
                        refunds.in_flight.extend(late.map(|late| (part, late)));
                    }
                    PartOutcome::Failed(error, late) => {
                        let limit = self.refund_limit();
                        let before = refunds.wait(limit, |_, _| {}).await;
                        let effect = before.and(error.effect());
                        let error = match effect == error.effect() {
                            true => error,
                            false => error.with_note(
                                "this is about one part of several: the charges in others may have \
                                 been made",
                            ),
                        };
                        caller.send(Err(error.with_effect(effect)));
                        refunds.in_flight.extend(late.map(|late| (part, late)));
                    }
                }
                refunds.wait(None, |_, _| {}).await;
                return;
            }
            caller.send(self.reply());
        }
    }
}

/// The outcome of one call to one part.
pub(super) enum PartOutcome {
    /// The request goes on with the [next](Divided::next_part) part.
    Continue,
    /// The request is denied. The answer is the refund of what the part grants too late, if it may.
    Denied(Option<Answer>),
    /// The request has failed, with the same answer.
    Failed(Error, Option<Answer>),
}

/// The refunds of a request that is not admitted, in flight.
#[must_use = "a refund that is dropped may not be sent"]
pub(super) struct Refunds<P> {
    in_flight: SmallVec<[(P, Answer); 2]>,
    /// The effect of what cannot be refunded.
    effect: Effect,
}

impl<P> Refunds<P> {
    /// `effect` is that of what cannot be refunded.
    pub(super) fn new(in_flight: impl IntoIterator<Item = (P, Answer)>, effect: Effect) -> Self {
        Self { in_flight: in_flight.into_iter().collect(), effect }
    }

    /// Waits until `limit` for all refunds together, and passes on their replies. Returns
    /// [`Effect::None`] if all units were refunded.
    pub(super) async fn wait(
        &mut self,
        limit: Option<TimeLimit>,
        mut keep: impl FnMut(&P, StoreReply),
    ) -> Effect {
        let Self { in_flight, effect } = self;
        let all = pin!(poll_fn(|cx| {
            in_flight.retain(|(part, answer)| match Pin::new(answer).poll(cx) {
                Poll::Pending => true,
                Poll::Ready(reply) => {
                    match reply {
                        Ok(reply) => keep(part, reply),
                        Err(error) => *effect = effect.and(effect_of_failed(&error)),
                    }
                    false
                }
            });
            if in_flight.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }));
        let in_time = match limit {
            Some(limit) => limit.wait(all).await.is_ok(),
            None => {
                all.await;
                true
            }
        };
        if in_time { self.effect } else { self.effect.and(Effect::Unknown) }
    }
}

/// Returns the effect of a check whose refund has failed.
fn effect_of_failed(error: &Error) -> Effect {
    telemetry::undo_failed();
    match error.effect() {
        Effect::None => Effect::Applied,
        Effect::Unknown | Effect::Applied => Effect::Unknown,
    }
}

/// The caller of a request, who may have stopped waiting.
pub(super) struct Caller(oneshot::Sender<Result<StoreReply, Error>>);

impl Caller {
    pub(super) fn send(self, reply: Result<StoreReply, Error>) {
        // A caller that has stopped waiting does not need the reply.
        let _ = self.0.send(reply);
    }
}

/// Waits for all answers at the same time.
pub(super) async fn wait_for_all(mut answers: Vec<Answer>) -> Vec<Result<StoreReply, Error>> {
    let mut replies: Vec<_> = answers.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (answer, reply) in answers.iter_mut().zip(&mut replies) {
            if reply.is_none()
                && let Poll::Ready(ready) = Pin::new(answer).poll(cx)
            {
                *reply = Some(ready);
            }
        }
        if replies.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    replies.into_iter().flatten().collect()
}

/// Runs `work` to its end, even if this future is dropped, so that no request stays charged in part.
/// Returns what `work` sends, which may be before its end.
pub(super) async fn to_the_end<F>(work: impl FnOnce(Caller) -> F) -> Result<StoreReply, Error>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (caller, reply) = oneshot::channel();
    let mut work = Box::pin(work(Caller(caller)));
    // Some work is done at the first poll, and needs no task.
    let is_done = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await;
    if !is_done {
        match runtime_with_timer() {
            Some(runtime) => drop(runtime.spawn(work)),
            None => work.await,
        }
    }
    reply.await.unwrap_or_else(|_| {
        let message = "the task of the request has ended: part of it may stay charged";
        Err(Error::new(ErrorKind::Unavailable, message).with_effect(Effect::Unknown))
    })
}
