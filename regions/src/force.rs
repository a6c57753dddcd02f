//! Charges beyond the limit, such as those of a settlement.

use std::sync::Arc;

use plimsoll::{
    Charge, Error,
    clock::Timestamp,
    error::Effect,
    store::{Request, Source, StoreReply, Verdict},
};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::{
    divided_line::{DividedLine, Part},
    stores::{Lines, Stores, combined, late, to_the_end, until},
};

/// Spends the cost of each charge:
///
/// 1. on the share, if it has that much left;
/// 2. otherwise on the pool, even beyond its limit;
/// 3. on the share, even beyond its limit, if there is no pool, or if the home store has certainly
///    not charged it.
///
/// So a settlement that the region cannot pay is known to all regions. A unit in flight is renewed by the part
/// that has it.
pub(crate) struct Force {
    stores: Arc<Stores>,
    lines: Lines,
    limit: Option<Instant>,
    time: Timestamp,
    source: Option<Source>,
}

impl Force {
    pub(crate) fn new(
        stores: &Arc<Stores>,
        charges: &[Charge<'_>],
        limit: Option<Instant>,
    ) -> Self {
        let (stores, lines) = (Arc::clone(stores), stores.lines(charges));
        Self { stores, lines, limit, time: Timestamp::default(), source: None }
    }

    /// Charges both parts, even if this future is dropped.
    pub(crate) async fn execute(mut self) -> Result<StoreReply, Error> {
        to_the_end(|caller| async move {
            let result = self.run().await;
            // A caller that has stopped waiting does not need the reply.
            let _ = caller.send(result.map(|()| {
                let charges = self.lines.iter().map(DividedLine::reply);
                StoreReply::new(self.time, self.source.unwrap_or(Source::Shared), charges)
            }));
        })
        .await
    }

    async fn run(&mut self) -> Result<(), Error> {
        self.ask(Part::Share, Beyond::No).await?;
        let is_unpaid = |line: &DividedLine| !line.is_decided();
        let before = match self.lines.iter().all(is_unpaid) {
            true => Effect::None,
            false => Effect::Applied,
        };
        let fail = |error: Error| {
            let effect = before.and(error.effect());
            Err(error.with_effect(effect))
        };
        if let Err(error) = self.ask(Part::Pool, Beyond::Yes).await {
            let mut unpaid = self.lines.iter().filter(|line| is_unpaid(line));
            let have_shares = unpaid.all(|line| line.may_exceed(Part::Share));
            if error.effect() != Effect::None || !have_shares {
                return fail(error);
            }
        }
        self.ask(Part::Share, Beyond::Yes).await.or_else(fail)
    }

    /// Asks a part to spend the charges that are unpaid.
    async fn ask(&mut self, part: Part, beyond: Beyond) -> Result<(), Error> {
        let may_pay = |line: &DividedLine| match beyond {
            Beyond::Yes => line.may_exceed(part),
            Beyond::No => line.quota(part).is_some() && line.charge.renews().is_none(),
        };
        let is_asked = |line: &DividedLine| !line.is_decided() && may_pay(line);
        let charges = self.lines.iter().filter(|line| is_asked(line)).filter_map(|line| {
            let charge = line.charge_on(part)?.up_to(line.charge.cost());
            // A shadow is spent if it passes by itself, and does not deny the others.
            Some(if beyond == Beyond::No { charge.shadow() } else { charge })
        });
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        if charges.is_empty() {
            return Ok(());
        }
        let request = match beyond {
            Beyond::Yes => Request::Force(&charges),
            Beyond::No => Request::Acquire(&charges),
        };
        let answer = self.stores.call(part, request, self.limit);
        // The regional store answers by the deadline by itself.
        let limit = self.limit.filter(|_| part == Part::Pool);
        let reply = until(limit, answer).await.unwrap_or_else(|_| Err(late()))?;
        if part == Part::Share || self.source.is_none() {
            self.time = reply.time;
        }
        let source = reply.source;
        self.source = Some(combined(self.source, source));
        let asked = self.lines.iter_mut().filter(|line| is_asked(line));
        for (line, charge_reply) in asked.zip(reply.charges()) {
            line.record(part, *charge_reply, source);
            // The fallback keeps forced charges for the store, but not those that are shadows.
            let is_paid = charge_reply.verdict == Verdict::Passed && source != Source::Fallback;
            if beyond == Beyond::Yes || is_paid {
                line.decide(part);
            }
        }
        Ok(())
    }
}

/// True if a part is charged beyond its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    Yes,
    No,
}
