//! Charges beyond the limit, such as a settlement makes.

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
    stores::{Lines, Stores, combined, late, to_the_end},
};

/// Spends the cost of each [charge](Charge):
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
        Self {
            stores: Arc::clone(stores),
            lines: stores.lines(charges),
            limit,
            time: Timestamp::default(),
            source: None,
        }
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
        self.ask(Part::Share, false).await?;
        let is_first = self.lines.iter().all(|line| !line.is_decided());
        let before = if is_first { Effect::None } else { Effect::Applied };
        let forced = self.force().await;
        forced.map_err(|error| {
            let effect = before.max(error.effect());
            error.with_effect(effect)
        })
    }

    async fn force(&mut self) -> Result<(), Error> {
        if let Err(error) = self.ask(Part::Pool, true).await {
            let mut unpaid = self.lines.iter().filter(|line| !line.is_decided());
            let have_shares = unpaid.all(|line| line.may_exceed(Part::Share));
            if error.effect() != Effect::None || !have_shares {
                return Err(error);
            }
        }
        self.ask(Part::Share, true).await
    }

    /// Asks a part to spend the charges that are unpaid, `beyond` its limit or within it.
    async fn ask(&mut self, part: Part, beyond: bool) -> Result<(), Error> {
        let asked = self.lines.iter().filter(|line| line.may_pay(part, beyond));
        let charges = asked.filter_map(|line| {
            let charge = line.charge_on(part)?.up_to(line.charge.cost());
            // A shadow is spent if it passes by itself, and does not deny the others.
            Some(if beyond { charge } else { charge.shadow() })
        });
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        if charges.is_empty() {
            return Ok(());
        }
        let request = if beyond { Request::Force(&charges) } else { Request::Acquire(&charges) };
        let answered = self.stores.ask(part, request, self.limit).await;
        let reply = answered.unwrap_or_else(|_| Err(late()))?;
        if part == Part::Share || self.source.is_none() {
            self.time = reply.time;
        }
        let source = reply.source;
        self.source = Some(combined(self.source, source));
        let asked = self.lines.iter_mut().filter(|line| line.may_pay(part, beyond));
        for (line, charge_reply) in asked.zip(reply.charges()) {
            line.record(part, *charge_reply, source);
            // The fallback keeps forced charges for the store, but not those that are shadows.
            let is_paid = charge_reply.verdict == Verdict::Passed && source != Source::Fallback;
            if beyond || is_paid {
                line.decide(part);
            }
        }
        Ok(())
    }
}
