//! The two stores of a region, and how long a request waits for them.

use std::{mem, pin::Pin};

use plimsoll::{
    Charge, Error,
    clock::Timestamp,
    decision::{Receipt, ReceiptLine},
    error::{Effect, ErrorKind},
    resilience::Protected,
    store::{Answer, Mark, Request, Source, Store, StoreReply},
};
use smallvec::SmallVec;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::yield_now,
    time::{Instant, timeout_at},
};

use crate::{
    divided_line::{DividedLine, Part},
    shares::Shares,
};

/// The two stores of a region, each behind stages of its own.
#[derive(Debug)]
pub(crate) struct Stores {
    pub(crate) region: Protected,
    pub(crate) home: Protected,
    pub(crate) shares: Shares,
}

pub(crate) type Lines = SmallVec<[DividedLine; 1]>;

impl Stores {
    pub(crate) fn lines(&self, charges: &[Charge<'_>]) -> Lines {
        charges.iter().map(|charge| self.line(charge)).collect()
    }

    pub(crate) fn line(&self, charge: &Charge<'_>) -> DividedLine {
        DividedLine::new(charge, self.shares.divide(charge.quota()))
    }

    /// Sends a request to the store of a part. The regional store answers by `limit`. The home store
    /// has its own, longer deadline, and callers stop waiting for it with [`until`].
    pub(crate) fn call(&self, part: Part, request: Request<'_>, limit: Option<Instant>) -> Answer {
        match part {
            Part::Share => self.region.call(request, limit.map(Instant::into_std)),
            Part::Pool => self.home.call(request, None),
        }
    }

    /// Sends a request to the store of a part, and waits for the reply until `limit`.
    ///
    /// # Errors
    ///
    /// Returns the answer of the home store if it is not ready at the limit.
    pub(crate) async fn ask(
        &self,
        part: Part,
        request: Request<'_>,
        limit: Option<Instant>,
    ) -> Result<Result<StoreReply, Error>, Answer> {
        let answer = self.call(part, request, limit);
        // The regional store answers by the deadline by itself, and its error says whether it was asked.
        let limit = limit.filter(|_| part == Part::Pool);
        until(limit, answer).await
    }

    /// Starts the refund of the units of a check that was denied. `sources` has the source of each part's
    /// reply, so that leased units go back to the stock.
    pub(crate) fn undo(
        &self,
        lines: &mut [DividedLine],
        time: Timestamp,
        sources: [Source; 2],
    ) -> [Option<Answer>; 2] {
        let mut spent: [SmallVec<[ReceiptLine; 1]>; 2] = Default::default();
        for line in lines {
            let Some((part, reply)) = line.undo() else { continue };
            let Some(charge) = line.charge_on(part) else { continue };
            spent[part as usize].push(line_of(charge, reply.units, reply.mark));
        }
        [Part::Share, Part::Pool].map(|part| {
            let lines = mem::take(&mut spent[part as usize]);
            let receipt = Receipt::new(time, sources[part as usize], lines);
            let is_spent = !receipt.lines().is_empty();
            is_spent.then(|| self.call(part, Request::Refund(&receipt), None))
        })
    }
}

/// Returns the line of a [receipt](Receipt).
pub(crate) fn line_of(charge: Charge<'_>, units: u64, mark: Mark) -> ReceiptLine {
    let quota = *charge.quota();
    ReceiptLine::from_parts(charge, quota, units, mark)
}

/// Waits for an answer until `limit`. A process that is late at the limit polls it once more.
///
/// # Errors
///
/// Returns the answer if it is not ready at the limit.
pub(crate) async fn until(
    limit: Option<Instant>,
    mut answer: Answer,
) -> Result<Result<StoreReply, Error>, Answer> {
    let Some(limit) = limit else { return Ok(answer.await) };
    if let Ok(reply) = timeout_at(limit, Pin::new(&mut answer)).await {
        return Ok(reply);
    }
    yield_now().await;
    timeout_at(limit, Pin::new(&mut answer)).await.map_err(|_| answer)
}

/// Waits for the answer of the part that was asked, if it was, until `limit`.
pub(crate) async fn wait_for(
    limit: Option<Instant>,
    answer: Option<Answer>,
) -> Option<Result<StoreReply, Error>> {
    Some(until(limit, answer?).await.unwrap_or_else(|_| Err(late())))
}

/// The caller of a request, which may have stopped waiting.
pub(crate) type Caller = oneshot::Sender<Result<StoreReply, Error>>;

/// Runs `work` to its end, even if this future is dropped, so that no request stays charged in part.
/// Returns what `work` sends, which may be before its end.
pub(crate) async fn to_the_end<F>(work: impl FnOnce(Caller) -> F) -> Result<StoreReply, Error>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (caller, reply) = oneshot::channel();
    let work = work(caller);
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(work)),
        Err(_) => work.await,
    }
    reply.await.unwrap_or_else(|_| {
        let message = "the task of the request has ended: part of it may stay charged";
        Err(Error::new(ErrorKind::Unavailable, message).with_effect(Effect::Unknown))
    })
}

/// Returns the error of a request that the home store has not answered in time.
pub(crate) fn late() -> Error {
    let message = "the home store of the regions did not answer by the deadline of the request";
    Error::new(ErrorKind::Unavailable, message).with_effect(Effect::Unknown)
}

/// Returns the source of a reply that two stores have made. Units of the fallback are refunded only if the
/// source is the fallback.
pub(crate) fn combined(first: Option<Source>, second: Source) -> Source {
    match (first, second) {
        (Some(Source::Fallback), _) | (_, Source::Fallback) => Source::Fallback,
        (Some(first), _) if first != second => Source::Shared,
        _ => second,
    }
}
