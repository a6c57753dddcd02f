//! A check of which some charges may be paid from stock.

use std::{borrow::Cow, slice, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::{
    super::{
        deadline::Deadline,
        fallback::Cause,
        fingerprint::Fingerprint,
        stages::{Origin, Stages},
    },
    leases::{Attempt, Leases, Payment},
    renewal::RenewalState,
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Mark, Source, StoreReply, Verdict},
    error::{Error, ErrorKind},
    policy::{Charge, Charges},
    remote::Resilience,
    runtime::runtime_with_timer,
    store::{Answer, Request},
    telemetry,
};

/// The charges of a check, in their order: those that are paid from stock, and those of which the
/// store is asked.
#[derive(Debug)]
struct Split(SmallVec<[SplitLine; 2]>);

#[derive(Debug)]
enum SplitLine {
    Paid(Payment),
    Rest {
        is_shadow: bool,
        /// The key, if it is busy.
        busy: Option<Fingerprint>,
    },
}

/// The renewals for which a check waits.
type Waits = SmallVec<[RenewalState; 2]>;

/// Decides a check. The stock pays the charges that it can, and the store is asked for the others in
/// one call. If the check is denied, the units return to the stock.
///
/// A check of a busy key whose stock is too small waits for the renewal of the stock, no longer than
/// `limit`. If the renewal was not sent in half of that time, or this process was late, the check asks the
/// store itself, and waits no longer than `limit` for it.
pub(super) fn acquire(
    stages: &Arc<Stages>,
    leases: &Leases,
    charges: &[Charge<'_>],
    limit: Option<Duration>,
) -> Answer {
    let split = Split::new(stages, leases, charges, true);
    match split.reply_if_paid() {
        Some(reply) => Answer::ready(Ok(reply)),
        None => acquire_rest(stages, leases, charges, split, limit),
    }
}

/// Decides a check of one charge like [`acquire`]. If the stock pays it, this does not allocate.
///
/// # Errors
///
/// Returns the answer if the stock is too small.
#[inline]
pub(in crate::remote) fn acquire_one(
    stages: &Arc<Stages>,
    leases: &Leases,
    charge: &Charge<'_>,
) -> Result<(Timestamp, ChargeReply), Answer> {
    match leases.pay(stages, charge, true) {
        Attempt::Paid(payment) => {
            telemetry::paid_from_stock();
            Ok((payment.time, payment.reply))
        }
        attempt => {
            let split = Split(SmallVec::from_iter([SplitLine::new(charge, attempt)]));
            let limit = stages.deadline;
            Err(acquire_rest(stages, leases, slice::from_ref(charge), split, limit))
        }
    }
}

/// Decides a check that the stock has not paid wholly.
#[inline(never)]
fn acquire_rest(
    stages: &Arc<Stages>,
    leases: &Leases,
    charges: &[Charge<'_>],
    split: Split,
    limit: Option<Duration>,
) -> Answer {
    let deadline = || limit.and_then(Deadline::new);
    match go_on(stages, leases, charges, split, deadline, true) {
        Next::Decided(answer) => answer,
        Next::Waits(waits, deadline) => {
            let charges = charges.iter().cloned().map(Charge::into_owned).collect();
            Answer::pending(acquire_after(Arc::clone(stages), charges, waits, deadline))
        }
    }
}

/// Decides a check after the renewals for which it waits.
async fn acquire_after(
    stages: Arc<Stages>,
    charges: Charges<'static>,
    mut waits: Waits,
    mut deadline: Option<Deadline>,
) -> Result<StoreReply, Error> {
    let Some(leases) = &stages.leases else { return Err(missed()) };
    let mut may_wait_again = true;
    loop {
        match wait(&stages, waits, deadline).await {
            Waited::Ended => {}
            Waited::Failed => {
                telemetry::deadline_missed();
                let request = Request::Acquire(&charges);
                return stages.fall_back(request, Cause::Failed(missed()), Origin::Caller);
            }
            Waited::Late => {
                may_wait_again = false;
                deadline = deadline.and_then(Deadline::again);
            }
        }
        let split = Split::new(&stages, leases, &charges, false);
        if let Some(reply) = split.reply_if_paid() {
            return Ok(reply);
        }
        match go_on(&stages, leases, &charges, split, || deadline, may_wait_again) {
            Next::Decided(answer) => return answer.await,
            Next::Waits(more, _) => waits = more,
        }
        // The first renewal of a key that has just become busy is too small for all that wait for it, but
        // it shows the demand. So a check waits twice at most, and then asks the store.
        may_wait_again = false;
    }
}

/// The result of a wait for renewals.
enum Waited {
    /// All have ended.
    Ended,
    /// The store has not answered all by the deadline.
    Failed,
    /// A renewal was not sent, or this process was late. The store may be well.
    Late,
}

/// Waits for renewals until the deadline, and until half of that time for the last one to be sent.
///
/// A process that is busy, or whose runtime is not driven, may not have polled the task of a renewal.
async fn wait(stages: &Stages, mut renewals: Waits, deadline: Option<Deadline>) -> Waited {
    let start = Instant::now();
    let half = deadline.map_or(start + Resilience::DEADLINE / 2, Deadline::half);
    let sent = async {
        for renewal in &mut renewals {
            // An error means that the renewal has ended.
            let _ = renewal.wait_for(|is_sent| *is_sent).await;
        }
    };
    if timeout_at(half, sent).await.is_err() {
        return Waited::Late;
    }
    let ended = async {
        for renewal in &mut renewals {
            while renewal.changed().await.is_ok() {}
        }
    };
    let Some(deadline) = deadline else {
        ended.await;
        return Waited::Ended;
    };
    if timeout_at(deadline.time(), ended).await.is_ok() {
        return Waited::Ended;
    }
    stages.scheduling_delay.record_timer(deadline.time());
    if stages.scheduling_delay.was_late_since(start) { Waited::Late } else { Waited::Failed }
}

/// The next step of a check that the stock has not paid wholly.
enum Next {
    Decided(Answer),
    /// The check waits for renewals.
    Waits(Waits, Option<Deadline>),
}

fn go_on(
    stages: &Arc<Stages>,
    leases: &Leases,
    charges: &[Charge<'_>],
    split: Split,
    deadline: impl FnOnce() -> Option<Deadline>,
    may_wait: bool,
) -> Next {
    let rest = split.rest(charges);
    let request = Request::Acquire(&rest);
    // The deny cache answers without a wait, and so does the fallback while the breaker is open.
    let tracked = match stages.answer_early(request, Origin::Caller) {
        Ok(tracked) => tracked,
        Err(answer) => return Next::Decided(split.join(stages, answer)),
    };
    let waits = if may_wait { split.waits(stages, leases, charges) } else { Waits::new() };
    if !waits.is_empty() {
        // Other checks may use the units meanwhile.
        split.undo(leases);
        return Next::Waits(waits, deadline());
    }
    let answer = stages.send(request, Origin::Caller, tracked, deadline());
    Next::Decided(split.join(stages, answer))
}

impl SplitLine {
    #[inline]
    fn new(charge: &Charge<'_>, attempt: Attempt) -> Self {
        match attempt {
            Attempt::Paid(payment) => Self::Paid(payment),
            Attempt::Short(busy) => Self::Rest { is_shadow: charge.is_shadow(), busy: Some(busy) },
            Attempt::Cold => Self::Rest { is_shadow: charge.is_shadow(), busy: None },
        }
    }
}

impl Split {
    /// Pays the charges that the stock can pay. `is_new` is false for a check that has waited, which
    /// counts once as demand.
    fn new(stages: &Arc<Stages>, leases: &Leases, charges: &[Charge<'_>], is_new: bool) -> Self {
        let pay = |charge| SplitLine::new(charge, leases.pay(stages, charge, is_new));
        Self(charges.iter().map(pay).collect())
    }

    /// Returns the reply to the check if all of it is paid.
    fn reply_if_paid(&self) -> Option<StoreReply> {
        let mut time = Timestamp::default();
        let mut charges = SmallVec::with_capacity(self.0.len());
        for line in &self.0 {
            let SplitLine::Paid(payment) = line else { return None };
            time = time.max(payment.time);
            charges.push(payment.reply);
        }
        telemetry::paid_from_stock();
        Some(StoreReply { time, source: Source::Leased, charges })
    }

    /// Returns the charges of which the store is asked.
    fn rest<'c>(&self, charges: &'c [Charge<'c>]) -> Cow<'c, [Charge<'c>]> {
        if !self.0.iter().any(|line| matches!(line, SplitLine::Paid(_))) {
            return Cow::Borrowed(charges);
        }
        let lines = charges.iter().zip(&self.0);
        let rest = lines.filter(|(_, line)| matches!(line, SplitLine::Rest { .. }));
        Cow::Owned(rest.map(|(charge, _)| charge.clone()).collect())
    }

    /// Returns the renewals of the busy keys whose stock is too small, which it starts if necessary. There
    /// are none outside of a runtime with timers, because a wait needs one.
    fn waits(&self, stages: &Arc<Stages>, leases: &Leases, charges: &[Charge<'_>]) -> Waits {
        if runtime_with_timer().is_none() {
            return Waits::new();
        }
        let lines = self.0.iter().zip(charges);
        let renewals = lines.filter_map(|(line, charge)| match line {
            SplitLine::Rest { busy: Some(busy), .. } => leases.join(stages, *busy, charge),
            SplitLine::Rest { busy: None, .. } | SplitLine::Paid(_) => None,
        });
        renewals.collect()
    }

    /// Puts the units of the check into the stocks that they were taken from.
    fn undo(&self, leases: &Leases) {
        for line in &self.0 {
            if let SplitLine::Paid(payment) = line {
                leases.undo(payment);
            }
        }
    }

    /// Joins the answer to the rest with the charges that are paid. If the future is dropped, they
    /// stay paid, because the store may have charged the rest.
    fn join(self, stages: &Arc<Stages>, answer: Answer) -> Answer {
        let is_cold = |line: &SplitLine| matches!(line, SplitLine::Rest { busy: None, .. });
        if self.0.iter().all(is_cold) {
            return answer;
        }
        let Some(leases) = &stages.leases else { return answer };
        let asked_at = leases.now();
        match answer.now() {
            Ok(reply) => Answer::ready(self.join_reply(leases, reply, asked_at)),
            Err(answer) => {
                let stages = Arc::clone(stages);
                Answer::pending(async move {
                    let reply = answer.await;
                    let Some(leases) = &stages.leases else { return reply };
                    self.join_reply(leases, reply, asked_at)
                })
            }
        }
    }

    fn join_reply(
        self,
        leases: &Leases,
        reply: Result<StoreReply, Error>,
        asked_at: u64,
    ) -> Result<StoreReply, Error> {
        let reply = reply.inspect_err(|_| self.undo(leases))?;
        let mut rest = reply.charges.iter();
        let is_admitted = self.0.iter().all(|line| match line {
            SplitLine::Paid(_) => true,
            SplitLine::Rest { is_shadow, .. } => {
                let passed = rest.next().is_some_and(|it| it.verdict == Verdict::Passed);
                passed || *is_shadow
            }
        });
        if !is_admitted {
            self.undo(leases);
        }
        let mut rest = reply.charges.iter();
        let lines = self.0.iter().filter_map(|line| match line {
            SplitLine::Paid(payment) if is_admitted => {
                // A fallback cannot refund units of the shared store.
                let is_refundable = reply.source != Source::Fallback;
                let units = if is_refundable { payment.reply.units } else { 0 };
                Some(ChargeReply { units, ..payment.reply })
            }
            SplitLine::Paid(payment) => Some(unspent(payment)),
            SplitLine::Rest { busy, .. } => {
                let mut charge_reply = *rest.next()?;
                if let (Some(busy), Source::Shared) = (busy, reply.source) {
                    leases.record(*busy, asked_at, reply.time, &mut charge_reply);
                }
                Some(charge_reply)
            }
        });
        let charges = lines.collect();
        Ok(StoreReply { time: reply.time, source: reply.source, charges })
    }
}

/// Returns the reply to a charge that passes by itself, in a check that is denied.
fn unspent(payment: &Payment) -> ChargeReply {
    let ChargeReply { verdict, units, mut standing, .. } = payment.reply;
    standing.remaining = standing.remaining.saturating_add(units).min(standing.limit);
    ChargeReply { verdict, units: 0, standing, mark: Mark::default() }
}

#[cold]
fn missed() -> Error {
    Error::new(ErrorKind::Unavailable, "the store has not answered the renewal of a lease in time")
}
