//! The two stores of a region, and how long a request waits for them.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use super::{
    divided_line::{DividedLine, Part},
    shares::Shares,
};
use crate::{
    clock::Timestamp,
    decision::{Receipt, ReceiptLine, Source, StoreReply},
    error::{Effect, Error, ErrorKind},
    policy::Charge,
    remote::Pipeline,
    runtime::{TimeLimit, runtime_with_timer},
    store::{Answer, Request},
    telemetry,
};

/// The two stores of a region, each behind stages of its own.
#[derive(Debug)]
pub(super) struct Stores {
    pub(super) region: Pipeline,
    pub(super) home: Pipeline,
    pub(super) shares: Shares,
    /// The longest wait of a caller that has set no deadline.
    pub(super) deadline: Option<Duration>,
}

pub(super) type Lines = SmallVec<[DividedLine; 1]>;

impl Stores {
    pub(super) fn lines(&self, charges: &[Charge<'_>]) -> Lines {
        charges.iter().map(|charge| self.line(charge)).collect()
    }

    pub(super) fn line(&self, charge: &Charge<'_>) -> DividedLine {
        DividedLine::new(charge, self.shares.divide(charge.quota()))
    }

    /// Returns the end of a wait that begins now, if the caller has set none.
    pub(super) fn limit(&self) -> Option<TimeLimit> {
        let deadline = self.deadline?;
        runtime_with_timer().map(|_| TimeLimit::after(deadline))
    }

    /// Sends a request to the store of a part. The regional store answers by `limit`. The home store
    /// has its own, longer deadline, and callers stop waiting for it with [`by`].
    pub(super) fn call(
        &self,
        part: Part,
        request: Request<'_>,
        limit: Option<TimeLimit>,
    ) -> Answer {
        match (part, limit) {
            (Part::Pool, _) => self.home.call(request),
            (Part::Share, None) => self.region.call(request),
            (Part::Share, Some(limit)) => {
                let left = limit.time().saturating_duration_since(Instant::now());
                self.region.call_within(request, left)
            }
        }
    }

    /// Starts the refund of the units that a check has spent and that is not admitted. Each refund is
    /// tried once, because a second try might refund twice. `sources` has the source of each part's
    /// reply, so that leased units go back to the stock.
    pub(super) fn undo(
        &self,
        lines: &mut [DividedLine],
        time: Timestamp,
        sources: [Source; 2],
    ) -> Refunds {
        let mut spent: [SmallVec<[ReceiptLine; 1]>; 2] = Default::default();
        for line in lines {
            let Some((part, reply)) = line.undo() else { continue };
            let Some(charge) = line.charge_on(part) else { continue };
            spent[part as usize].push(ReceiptLine::new(charge, reply.units, reply.mark));
        }
        let [share, pool] = spent;
        let start = |(part, lines): (Part, SmallVec<[ReceiptLine; 1]>)| {
            let receipt = Receipt::new(time, sources[part as usize], lines);
            self.call(part, Request::Refund(&receipt), None)
        };
        let parts = [(Part::Share, share), (Part::Pool, pool)];
        Refunds(parts.into_iter().filter(|(_, lines)| !lines.is_empty()).map(start).collect())
    }
}

/// Waits for an answer until `limit`.
///
/// # Errors
///
/// Returns the answer if it is not ready at the limit.
pub(super) async fn by(
    limit: Option<TimeLimit>,
    mut answer: Answer,
) -> Result<Result<StoreReply, Error>, Answer> {
    match limit {
        None => Ok(answer.await),
        Some(limit) => limit.wait(Pin::new(&mut answer)).await.map_err(|_| answer),
    }
}

/// Returns the error of a request that the home store has not answered in time.
pub(super) fn late() -> Error {
    let message = "the home store of the regions did not answer by the deadline of the request";
    Error::new(ErrorKind::Unavailable, message).with_effect(Effect::Unknown)
}

/// Returns the effect of a request whose two parts had these effects.
pub(super) fn combine(first: Effect, second: Effect) -> Effect {
    match (first, second) {
        (Effect::Applied, _) | (_, Effect::Applied) => Effect::Applied,
        (Effect::Unknown, _) | (_, Effect::Unknown) => Effect::Unknown,
        (Effect::None, Effect::None) => Effect::None,
    }
}

/// Returns the source of a reply that two stores have made. Units of the fallback are refunded only if the
/// source is the fallback.
pub(super) fn join(first: Option<Source>, second: Source) -> Source {
    match (first, second) {
        (Some(Source::Fallback), _) | (_, Source::Fallback) => Source::Fallback,
        (Some(first), _) if first != second => Source::Shared,
        _ => second,
    }
}

/// Runs `work` to its end, even if this future is dropped. Returns what `work` sends, which may be
/// before its end.
pub(super) async fn to_the_end<F>(work: impl FnOnce(Caller) -> F) -> Result<StoreReply, Error>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (caller, reply) = oneshot::channel();
    let mut work = Box::pin(work(Caller(caller)));
    // Most work is done at the first poll, and needs no task.
    let is_done = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await;
    if !is_done {
        // The deadline of the home store ends the task.
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

/// The caller of a request, who may have stopped waiting.
pub(super) struct Caller(oneshot::Sender<Result<StoreReply, Error>>);

impl Caller {
    pub(super) fn send(self, reply: Result<StoreReply, Error>) {
        // A caller that has stopped waiting does not need the reply.
        let _ = self.0.send(reply);
    }
}

/// The refunds of a check that is not admitted, in flight.
#[must_use = "a refund that is dropped may not be sent"]
pub(super) struct Refunds(SmallVec<[Answer; 2]>);

impl Refunds {
    /// Waits until `limit`. Returns [`Effect::None`] if all units were refunded.
    pub(super) async fn wait(&mut self, limit: Option<TimeLimit>) -> Effect {
        let mut effect = Effect::None;
        for answer in std::mem::take(&mut self.0) {
            let refunded = match by(limit, answer).await {
                Ok(reply) => outcome(reply),
                Err(answer) => {
                    self.0.push(answer);
                    Effect::Unknown
                }
            };
            effect = combine(effect, refunded);
        }
        effect
    }

    /// Waits for the rest.
    pub(super) async fn finish(mut self) {
        self.wait(None).await;
    }
}

/// Returns the effect of a check whose refund had this reply.
fn outcome(reply: Result<StoreReply, Error>) -> Effect {
    let Err(error) = reply else { return Effect::None };
    telemetry::undo_failed();
    match error.effect() {
        Effect::None => Effect::Applied,
        _ => Effect::Unknown,
    }
}
