//! The requests that go to both parts at once, and refunds, which go to the parts that have paid.

use plimsoll::{
    Charge, Error,
    decision::{Receipt, ReceiptLine},
    error::Effect,
    store::{Answer, Request, Source, StoreReply},
};
use smallvec::SmallVec;
use tokio::{join, time::Instant};

use crate::{
    divided_line::{DividedLine, Part},
    stores::{Lines, Stores, combined, line_of, wait_for},
};

/// A request in flight to both parts.
pub(crate) struct Both {
    lines: Lines,
    share: Sent,
    pool: Sent,
    limit: Option<Instant>,
    is_peek: bool,
}

/// A request in flight to one part.
struct Sent {
    part: Part,
    /// `None` if the request has nothing for this part.
    answer: Option<Answer>,
    /// The positions of the [charges](Charge) that the answer is about.
    positions: SmallVec<[usize; 4]>,
}

impl Both {
    /// Sends a request about these [charges](Charge) to each part that they have.
    pub(crate) fn send(
        stores: &Stores,
        charges: &[Charge<'_>],
        request: impl for<'r> Fn(&'r [Charge<'r>]) -> Request<'r>,
        limit: Option<Instant>,
    ) -> Self {
        let lines = stores.lines(charges);
        let [share, pool] = [Part::Share, Part::Pool].map(|part| {
            let lines = lines.iter().enumerate();
            let charged = lines.filter_map(|(index, line)| Some((index, line.charge_on(part)?)));
            let (positions, charges): (SmallVec<_>, SmallVec<[Charge<'_>; 4]>) = charged.unzip();
            let answer = (!charges.is_empty()).then(|| stores.call(part, request(&charges), limit));
            Sent { part, answer, positions }
        });
        let is_peek = matches!(request(&[]), Request::Peek(_));
        Self { lines, share, pool, limit, is_peek }
    }

    /// Sends each line of a [receipt](Receipt) to the part that has paid it.
    pub(crate) fn refund(stores: &Stores, receipt: &Receipt, limit: Option<Instant>) -> Self {
        let charges = receipt.lines().iter().map(|line| &line.charge);
        let lines: Lines = charges.map(|charge| stores.line(charge)).collect();
        let [share, pool] = [Part::Share, Part::Pool].map(|part| {
            let mut positions = SmallVec::new();
            let mut paid = SmallVec::<[ReceiptLine; 1]>::new();
            for (index, (line, spent)) in lines.iter().zip(receipt.lines()).enumerate() {
                let (spent_on, mark) = Part::of(spent.mark);
                if let (true, Some(charge)) = (spent_on == part, line.charge_on(part)) {
                    positions.push(index);
                    paid.push(line_of(charge, spent.units, mark));
                }
            }
            let receipt = Receipt::new(receipt.time, receipt.source, paid);
            let answer = (!positions.is_empty())
                .then(|| stores.call(part, Request::Refund(&receipt), limit));
            Sent { part, answer, positions }
        });
        Self { lines, share, pool, limit, is_peek: false }
    }

    /// Waits for both parts, and combines their replies.
    ///
    /// # Errors
    ///
    /// Returns an error if a part fails. A peek fails only if a charge is left of which no part has replied.
    pub(crate) async fn wait(mut self) -> Result<StoreReply, Error> {
        let share = wait_for(None, self.share.answer.take());
        let pool = wait_for(self.limit, self.pool.answer.take());
        let region_suffices = self.is_peek && self.share.positions.len() == self.lines.len();
        let (share, pool) = match join!(share, pool) {
            (Some(Err(error)), pool) => return Err(self.failure(error, pool)),
            (share, Some(Err(error))) if !region_suffices => {
                return Err(self.failure(error, share));
            }
            (share, pool) => (share.and_then(Result::ok), pool.map(Result::ok)),
        };
        let mut time = None;
        let mut source = None;
        let is_region_alone = matches!(pool, Some(None));
        for (reply, sent) in [(share, &self.share), (pool.flatten(), &self.pool)] {
            let Some(reply) = reply else { continue };
            time = time.or(Some(reply.time));
            source = Some(combined(source, reply.source));
            for (index, charge_reply) in sent.positions.iter().zip(reply.charges()) {
                self.lines[*index].record(sent.part, *charge_reply, reply.source);
                if charge_reply.units > 0 {
                    self.lines[*index].decide(sent.part);
                }
            }
        }
        let source = if is_region_alone { Some(Source::Region) } else { source };
        let charges = self.lines.iter().map(DividedLine::reply);
        Ok(StoreReply::new(time.unwrap_or_default(), source.unwrap_or(Source::Shared), charges))
    }

    /// Returns the error of a request of which one part has failed.
    fn failure(&self, error: Error, other: Option<Result<StoreReply, Error>>) -> Error {
        let other = match other {
            None => Effect::None,
            Some(_) if self.is_peek => Effect::None,
            Some(Ok(_)) => Effect::Applied,
            Some(Err(error)) => error.effect(),
        };
        let effect = error.effect().max(other);
        error.with_effect(effect)
    }
}
