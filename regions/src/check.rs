//! A check over both parts: all of its [charges](Charge) are admitted, or none is spent.

use std::sync::Arc;

use plimsoll::{
    Charge, Error, OnFailure,
    clock::Timestamp,
    decision::Receipt,
    error::{Effect, ErrorKind},
    store::{Answer, Request, Source, StoreReply, Verdict},
};
use smallvec::SmallVec;
use tokio::{join, time::Instant};

use crate::{
    divided_line::{DividedLine, Part},
    stores::{Caller, Lines, Stores, combined, late, line_of, to_the_end, until, wait_for},
};

/// A check over both parts.
///
/// 1. The share is asked for all [charges](Charge) that have one.
/// 2. The pool is asked for the charges that the share has refused, and for those without a share.
/// 3. The share is asked for the rest, which it has not spent yet. If others have spent its units
///    meanwhile, steps 2 and 3 are repeated for what it refuses. Each time one charge fewer is left.
///
/// A charge that both parts refuse denies the check, and the units of the others are refunded.
///
/// If the home store does not answer, the [`OnFailure`] of each charge that needs the pool decides: the
/// default denies the check. A reply that comes too late is refunded. If the store of the region does not
/// answer, its fallback decides by the share, and what it refuses is not passed on to the pool.
///
/// A shadow charge is decided by the part that is asked first. A trial is paid by the pool if the share refuses it, as
/// a live charge would be.
pub(crate) struct DividedCheck {
    stores: Arc<Stores>,
    lines: Lines,
    limit: Option<Instant>,
    /// The time of the regional store, or of the home store if only that has replied.
    time: Timestamp,
    /// The source of the replies that admitted their charges.
    paid: Option<Source>,
    /// The source of the reply by which each part has spent units.
    sources: [Source; 2],
    /// The source of the replies that did not.
    denied: Option<Source>,
    /// True if the fallback has decided in place of the store of the region.
    has_fallen_back: bool,
    /// The answer of the pool that was not ready when it was needed, and its charges.
    late: Option<(Answer, Positions)>,
}

/// The positions of the charges in one call to a part.
type Positions = SmallVec<[usize; 4]>;

impl DividedCheck {
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
            paid: None,
            sources: [Source::Shared; 2],
            denied: None,
            has_fallen_back: false,
            late: None,
        }
    }

    /// Decides the check.
    pub(crate) async fn decide(mut self) -> Result<StoreReply, Error> {
        let has_share = !self.positions(Part::Share).is_empty();
        let mut next = if has_share { Some(Part::Share) } else { self.next_part() };
        // The regional store spends all or nothing, so no task is needed before it has answered,
        // unless it is asked for some of the charges only.
        if has_share && self.positions(Part::Pool).is_empty() {
            if !self.ask(Part::Share).await? {
                return Ok(self.reply());
            }
            next = self.next_part();
        }
        match next {
            Some(part) => to_the_end(|caller| self.run(caller, part)).await,
            None => Ok(self.reply()),
        }
    }

    /// Returns the reaction to the failure of a part: the strictest one of the charges that wait for it.
    /// The store of the region has failed only if its own fallback does not decide either.
    fn reaction(&self, part: Part) -> OnFailure {
        match part {
            Part::Share => OnFailure::Deny,
            Part::Pool => {
                let waiting = self.lines.iter().filter(|line| line.binds(part));
                let reactions = waiting.map(|line| line.charge.on_failure());
                reactions.max().unwrap_or(OnFailure::Allow)
            }
        }
    }

    /// Keeps the reply of a part. Returns whether the part has spent the charges.
    fn record(&mut self, part: Part, asked: &[usize], reply: StoreReply) -> Result<bool, Error> {
        let source = reply.source;
        if reply.charges().len() != asked.len() {
            let message = "the store has not replied to each charge of a region";
            return Err(Error::new(ErrorKind::Protocol, message).with_effect(Effect::Unknown));
        }
        if part == Part::Share || self.time == Timestamp::default() {
            self.time = reply.time;
        }
        self.has_fallen_back |= part == Part::Share && source == Source::Fallback;
        let mut is_admitted = true;
        for (index, charge_reply) in asked.iter().zip(reply.charges()) {
            let line = &mut self.lines[*index];
            is_admitted &= !line.charge.is_live() || charge_reply.verdict == Verdict::Passed;
            line.record(part, *charge_reply, source);
            if line.charge.is_trial() {
                line.decide_trial(part);
            }
        }
        let decided = if is_admitted { &mut self.paid } else { &mut self.denied };
        *decided = Some(combined(*decided, source));
        if is_admitted {
            self.sources[part as usize] = source;
            let waiting = self.lines.iter_mut().filter(|line| line.waits_for(part));
            waiting.filter(|line| !line.charge.is_trial()).for_each(|line| line.decide(part));
        }
        Ok(is_admitted)
    }

    /// Passes the charges that the share has refused on to the pool. Returns false if the check is denied:
    /// because the pool cannot pay one of them either, or because the fallback has refused them.
    fn move_refused(&mut self) -> bool {
        if self.has_fallen_back {
            return false;
        }
        let refused = self.lines.iter_mut().filter(|line| line.is_refused_by_share());
        refused.fold(true, |all, line| all & line.move_to_pool())
    }

    /// Returns whether a charge that can deny the check waits for this part.
    fn binds(&self, part: Part) -> bool {
        self.lines.iter().any(|line| line.binds(part))
    }

    /// Ends the charges that wait for this part.
    fn decide_waiting(&mut self, part: Part) {
        let waiting = self.lines.iter_mut().filter(|line| line.waits_for(part));
        waiting.for_each(|line| line.decide(part));
    }

    /// Admits the charges that wait for the pool, which has not answered.
    fn admit_waiting(&mut self) {
        self.paid = Some(combined(self.paid, Source::Region));
        let waiting = self.lines.iter_mut().filter(|line| line.waits_for(Part::Pool));
        waiting.for_each(DividedLine::admit);
    }

    fn positions(&self, part: Part) -> Positions {
        (0..self.lines.len()).filter(|index| self.lines[*index].waits_for(part)).collect()
    }

    /// Asks the parts in turn, this one first, and sends the reply to the caller. If a part denies or fails, the parts
    /// before it refund what they have spent. Each refund is tried once, because a second try might refund
    /// twice.
    async fn run(mut self, caller: Caller, first: Part) {
        let mut next = Some(first);
        while let Some(part) = next {
            let failed = match self.ask(part).await {
                Ok(true) => {
                    next = self.next_part();
                    continue;
                }
                Ok(false) => None,
                Err(error) => Some(error),
            };
            let [share, pool] = self.stores.undo(&mut self.lines, self.time, self.sources);
            let refunds = Answer::pending(refund(share, pool));
            // A caller that has stopped waiting does not need the reply.
            let Some(error) = failed else {
                let _ = caller.send(Ok(self.reply()));
                drop(refunds.await);
                return self.refund_late().await;
            };
            let refunded = until(self.limit, refunds).await;
            let of_refunds = match &refunded {
                Ok(refunded) => refunded.as_ref().map_or_else(Error::effect, |_| Effect::None),
                Err(_) => Effect::Unknown,
            };
            let effect = of_refunds.max(error.effect());
            let _ = caller.send(Err(error.with_effect(effect)));
            if let Err(refunds) = refunded {
                drop(refunds.await);
            }
            return self.refund_late().await;
        }
        let _ = caller.send(Ok(self.reply()));
    }

    /// Refunds the units that the pool grants after the decision, which are not used.
    async fn refund_late(self) {
        let Some((answer, asked)) = self.late else { return };
        // Without a reply there is nothing to refund, and that is no failure of a refund.
        let Ok(reply) = answer.await else { return };
        let charges = asked.iter().filter_map(|index| self.lines[*index].charge_on(Part::Pool));
        let granted = charges.zip(reply.charges()).filter(|(_, it)| it.units > 0);
        let lines = granted.map(|(charge, it)| line_of(charge, it.units, it.mark));
        let receipt = Receipt::new(reply.time, reply.source, lines);
        if !receipt.lines().is_empty() {
            drop(self.stores.call(Part::Pool, Request::Refund(&receipt), None).await);
        }
    }

    /// Returns the part to ask next: the pool before the share. The share has already refused the
    /// charges that it cannot pay, so the pool is more likely to deny. If it denies first, there is nothing
    /// to refund in the share.
    fn next_part(&self) -> Option<Part> {
        let mut parts = [Part::Pool, Part::Share].into_iter();
        parts.find(|part| self.lines.iter().any(|line| line.waits_for(*part)))
    }

    /// Asks a part for all charges that wait for it. Returns false if the check is denied.
    async fn ask(&mut self, part: Part) -> Result<bool, Error> {
        let asked = self.positions(part);
        let charges = asked.iter().filter_map(|index| self.lines[*index].charge_on(part));
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        let mut in_flight = None;
        let answered = self.stores.ask(part, Request::Acquire(&charges), self.limit).await;
        let reply = answered.unwrap_or_else(|answer| {
            in_flight = Some(answer);
            Err(late())
        });
        let error = match reply.and_then(|reply| self.record(part, &asked, reply)) {
            Ok(is_admitted) => {
                return Ok(is_admitted || (part == Part::Share && self.move_refused()));
            }
            Err(error) => error,
        };
        if !self.binds(part) {
            self.decide_waiting(part);
            return Ok(true);
        }
        let reaction = self.reaction(part);
        if reaction == OnFailure::Allow {
            self.admit_waiting();
            return Ok(true);
        }
        self.late = in_flight.map(|answer| (answer, asked));
        match reaction {
            OnFailure::Local if error.is_unavailable() => {
                // Without the pool, the region denies the check.
                let waiting = self.lines.iter_mut().filter(|line| line.binds(part));
                waiting.for_each(DividedLine::refuse);
                self.denied = Some(Source::Region);
                Ok(false)
            }
            _ => Err(error),
        }
    }

    fn reply(&self) -> StoreReply {
        let is_admitted = self.lines.iter().all(DividedLine::is_decided);
        let source = if is_admitted { self.paid } else { self.denied };
        let charges = self.lines.iter().map(DividedLine::reply);
        StoreReply::new(self.time, source.unwrap_or(Source::Shared), charges)
    }
}

/// Waits for the refunds of a check that is not admitted.
///
/// # Errors
///
/// Returns an error if some units stay charged. Its effect is the effect of the whole check.
async fn refund(share: Option<Answer>, pool: Option<Answer>) -> Result<StoreReply, Error> {
    let (share, pool) = join!(wait_for(None, share), wait_for(None, pool));
    let mut failed: Option<Error> = None;
    for error in [share, pool].into_iter().flatten().filter_map(Result::err) {
        undo_failed();
        let stays = match error.effect() {
            Effect::None => Effect::Applied,
            Effect::Unknown | Effect::Applied => Effect::Unknown,
        };
        let effect = failed.as_ref().map_or(Effect::None, Error::effect).max(stays);
        failed = Some(error.with_effect(effect));
    }
    failed.map_or_else(|| Ok(StoreReply::new(Timestamp::default(), Source::Shared, [])), Err)
}

#[cfg(feature = "metrics")]
fn undo_failed() {
    metrics::counter!("plimsoll_undo_failed_total").increment(1);
}

#[cfg(not(feature = "metrics"))]
fn undo_failed() {}
