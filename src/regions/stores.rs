//! The two stores of a region, and how long a request waits for them.

use std::{pin::Pin, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

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
    store::{Answer, Request, divided::Refunds},
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
    /// has its own, longer deadline, and callers stop waiting for it with [`until`].
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

    /// Starts the refund of the units of a check that was denied. `sources` has the source of each part's
    /// reply, so that leased units go back to the stock.
    pub(super) fn undo(
        &self,
        lines: &mut [DividedLine],
        time: Timestamp,
        sources: [Source; 2],
    ) -> Refunds<Part> {
        let mut spent: [SmallVec<[ReceiptLine; 1]>; 2] = Default::default();
        for line in lines {
            let Some((part, reply)) = line.undo() else { continue };
            let Some(charge) = line.charge_on(part) else { continue };
            spent[part as usize].push(ReceiptLine::new(charge, reply.units, reply.mark));
        }
        let [share, pool] = spent;
        let start = |(part, lines): (Part, SmallVec<[ReceiptLine; 1]>)| {
            let receipt = Receipt::new(time, sources[part as usize], lines);
            (part, self.call(part, Request::Refund(&receipt), None))
        };
        let parts = [(Part::Share, share), (Part::Pool, pool)];
        let spent = parts.into_iter().filter(|(_, lines)| !lines.is_empty());
        Refunds::new(spent.map(start), Effect::None)
    }
}

/// Waits for an answer until `limit`.
///
/// # Errors
///
/// Returns the answer if it is not ready at the limit.
pub(super) async fn until(
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

/// Returns the source of a reply that two stores have made. Units of the fallback are refunded only if the
/// source is the fallback.
pub(super) fn combined(first: Option<Source>, second: Source) -> Source {
    match (first, second) {
        (Some(Source::Fallback), _) | (_, Source::Fallback) => Source::Fallback,
        (Some(first), _) if first != second => Source::Shared,
        _ => second,
    }
}
