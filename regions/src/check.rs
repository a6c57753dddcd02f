//! A check over both parts: all of its charges are admitted, or none is spent.

use std::sync::Arc;

use plimsoll::{
    Charge, Error, OnFailure,
    clock::Timestamp,
    decision::{Receipt, ReceiptLine},
    error::{Effect, ErrorKind},
    store::{Answer, Request, Source, StoreReply, Verdict},
};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::{
    divided_line::{DividedLine, Part},
    stores::{Caller, Lines, Stores, combined, late, line_of, to_the_end, until, wait_for_all},
};

/// A check that the share does not decide alone and at once.
///
/// 1. The share is asked for all charges that have one.
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
/// A shadow charge is decided by the part that is asked first.
pub(crate) struct DividedCheck {
    stores: Arc<Stores>,
    lines: Lines,
    limit: Option<Instant>,
    /// The time of the regional store, or of the home store if only that has replied.
    time: Timestamp,
    /// The source of the units, and that of the denials of a part.
    paid: Option<Source>,
    /// The source of the reply by which each part has spent units.
    sources: [Source; 2],
    denied: Option<Source>,
    /// True if the fallback has decided in place of the store of the region.
    has_fallen_back: bool,
}

/// The positions of the charges in one call to a part.
type Positions = SmallVec<[usize; 4]>;

impl DividedCheck {
    pub(crate) fn new(
        stores: &Arc<Stores>,
        charges: &[Charge<'_>],
        limit: Option<Instant>,
    ) -> Self {
        let (stores, lines) = (Arc::clone(stores), stores.lines(charges));
        Self {
            stores,
            lines,
            limit,
            time: Timestamp::default(),
            paid: None,
            sources: [Source::Shared; 2],
            denied: None,
            has_fallen_back: false,
        }
    }

    /// Decides the check. `first` is the answer of the share to all charges that have one, if it has
    /// been asked.
    pub(crate) async fn decide(mut self, first: Option<Answer>) -> Result<StoreReply, Error> {
        // The regional store spends all or nothing, so no task is needed before it has answered,
        // unless it is asked for some of the charges only.
        if self.positions(Part::Pool).is_empty() {
            return match self.begin(first).await? {
                Some(reply) => Ok(reply),
                None => to_the_end(|caller| self.run(caller)).await,
            };
        }
        let work = |caller: Caller| async move {
            match self.begin(first).await.transpose() {
                Some(reply) => drop(caller.send(reply)),
                None => self.run(caller).await,
            }
        };
        to_the_end(work).await
    }

    /// Asks the share for all charges that have one. Returns the reply if this decides the check.
    async fn begin(&mut self, first: Option<Answer>) -> Result<Option<StoreReply>, Error> {
        let asked = self.positions(Part::Share);
        if !asked.is_empty() {
            let answer = first.unwrap_or_else(|| self.send(Part::Share, &asked));
            let reply = answer.await?;
            if !self.record(Part::Share, &asked, reply)? && !self.move_refused() {
                return self.reply().map(Some);
            }
        }
        if self.next_part().is_some() { Ok(None) } else { self.reply().map(Some) }
    }

    /// Returns the reaction to the failure of a part: the strictest one of the charges that wait for it.
    /// The store of the region has failed only if its own fallback does not decide either.
    fn reaction(&self, part: Part) -> OnFailure {
        match part {
            Part::Share => OnFailure::Deny,
            Part::Pool => {
                let waiting = self.lines.iter().filter(|line| line.binds(part));
                let reactions = waiting.map(|line| line.charge.on_failure());
                reactions.fold(OnFailure::Allow, OnFailure::stricter)
            }
        }
    }

    /// Returns the refund of the units that the pool grants after the decision, which are not used.
    fn refund_late(&self, answer: Answer, asked: &[usize]) -> Answer {
        let charges = asked.iter().filter_map(|index| self.lines[*index].charge_on(Part::Pool));
        let (stores, charges): (_, Vec<_>) = (Arc::clone(&self.stores), charges.collect());
        Answer::pending(async move {
            // Without a reply there is nothing to refund, and that is no failure of a refund.
            let Ok(reply) = answer.await else {
                return Ok(StoreReply::new(Timestamp::default(), Source::Shared, []));
            };
            let lines = charges.into_iter().zip(reply.charges()).filter(|(_, it)| it.units > 0);
            let lines: Vec<ReceiptLine> =
                lines.map(|(charge, it)| line_of(charge, it.units, it.mark)).collect();
            let receipt = Receipt::new(reply.time, reply.source, lines);
            match receipt.lines() {
                [] => Ok(reply),
                _ => stores.call(Part::Pool, Request::Refund(&receipt), None).await,
            }
        })
    }

    fn send(&self, part: Part, asked: &[usize]) -> Answer {
        let charges = asked.iter().filter_map(|index| self.lines[*index].charge_on(part));
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        self.stores.call(part, Request::Acquire(&charges), self.limit)
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
            is_admitted &= line.charge.is_shadow() || charge_reply.verdict == Verdict::Passed;
            line.record(part, *charge_reply, source);
        }
        let decided = if is_admitted { &mut self.paid } else { &mut self.denied };
        *decided = Some(combined(*decided, source));
        if is_admitted {
            self.sources[part as usize] = source;
            asked.iter().for_each(|index| self.lines[*index].decide(part));
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

    /// Asks the parts in turn, and sends the reply to the caller. If a part denies or fails, the parts
    /// before it refund what they have spent. Each refund is tried once, because a second try might refund
    /// twice.
    async fn run(mut self, caller: Caller) {
        while let Some(part) = self.next_part() {
            let (failed, late) = match self.ask(part).await {
                Outcome::Continue => continue,
                Outcome::Denied(late) => (None, late),
                Outcome::Failed(error, late) => (Some(error), late),
            };
            let refunds = self.stores.undo(&mut self.lines, self.time, self.sources);
            let refunds = Answer::pending(refund(refunds));
            let mut in_flight: Vec<Answer> = late.into_iter().collect();
            // A caller that has stopped waiting does not need the reply.
            let _ = match failed {
                None => {
                    in_flight.push(refunds);
                    caller.send(self.reply())
                }
                Some(error) => {
                    let effect = match until(self.limit, refunds).await {
                        Ok(refunded) => refunded.map_or_else(|it| it.effect(), |_| Effect::None),
                        Err(refunds) => {
                            in_flight.push(refunds);
                            Effect::Unknown
                        }
                    };
                    let effect = effect.and(error.effect());
                    caller.send(Err(error.with_effect(effect)))
                }
            };
            wait_for_all(in_flight).await;
            return;
        }
        let _ = caller.send(self.reply());
    }

    /// Returns the part to ask next: the pool before the share. The share has already refused the
    /// charges that it cannot pay, so the pool is more likely to deny. If it denies first, there is nothing
    /// to refund in the share.
    fn next_part(&self) -> Option<Part> {
        let waits = |part: &Part| self.lines.iter().any(|line| line.waits_for(*part));
        [Part::Pool, Part::Share].into_iter().find(waits)
    }

    /// Asks a part for all charges that wait for it.
    async fn ask(&mut self, part: Part) -> Outcome {
        let asked = self.positions(part);
        let answer = self.send(part, &asked);
        // The regional store answers by the deadline, and its error says whether it was asked.
        let limit = self.limit.filter(|_| part == Part::Pool);
        let (error, late) = match until(limit, answer).await {
            Ok(reply) => match reply.and_then(|reply| self.record(part, &asked, reply)) {
                Ok(true) => return Outcome::Continue,
                Ok(false) if part == Part::Share && self.move_refused() => {
                    return Outcome::Continue;
                }
                Ok(false) => return Outcome::Denied(None),
                Err(error) => (error, None),
            },
            Err(answer) => (late(), Some(answer)),
        };
        let reaction = self.reaction(part);
        if !self.binds(part) {
            self.decide_waiting(part);
            return Outcome::Continue;
        }
        if reaction == OnFailure::Allow {
            self.admit_waiting();
            return Outcome::Continue;
        }
        let late = late.map(|answer| self.refund_late(answer, &asked));
        if reaction == OnFailure::Local && error.is_unavailable() {
            // Without the pool, the region denies the check.
            let waiting = self.lines.iter_mut().filter(|line| line.binds(part));
            waiting.for_each(DividedLine::refuse);
            self.denied = Some(Source::Region);
            return Outcome::Denied(late);
        }
        Outcome::Failed(error, late)
    }

    fn reply(&self) -> Result<StoreReply, Error> {
        let is_admitted = self.lines.iter().all(DividedLine::is_decided);
        let source = if is_admitted { self.paid } else { self.denied };
        let charges = self.lines.iter().map(DividedLine::reply);
        Ok(StoreReply::new(self.time, source.unwrap_or(Source::Shared), charges))
    }
}

/// The outcome of one call to one part.
enum Outcome {
    /// The check goes on with the [next](DividedCheck::next_part) part.
    Continue,
    /// The check is denied. The answer is the refund of what the part grants too late, if it may.
    Denied(Option<Answer>),
    /// The check has failed, with the same answer.
    Failed(Error, Option<Answer>),
}

/// Waits for the refunds of a check that is not admitted.
///
/// # Errors
///
/// Returns an error if some units stay charged. Its effect is the effect of the whole check.
async fn refund(refunds: Vec<Answer>) -> Result<StoreReply, Error> {
    let mut failed: Option<Error> = None;
    for error in wait_for_all(refunds).await.into_iter().filter_map(Result::err) {
        undo_failed();
        let stays = match error.effect() {
            Effect::None => Effect::Applied,
            Effect::Unknown | Effect::Applied => Effect::Unknown,
        };
        let effect = failed.as_ref().map_or(Effect::None, Error::effect).and(stays);
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
