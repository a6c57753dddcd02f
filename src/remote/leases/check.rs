//! A check of which some charges may be paid from stock, in four steps:
//!
//! 1. [Split](Split::new): the stock pays the charges that it can. The rest is for the store.
//! 2. [Wait](wait): if the stock of a busy key is too small, the check waits for the renewal of the stock,
//!    and begins again, at most twice.
//! 3. [Send](send): the store is asked for the rest in one call.
//! 4. [Merge](Split::merge): the answer of the store and the paid charges are one reply. If the check is
//!    denied, the units return to the stock.

use std::{borrow::Cow, pin::pin, slice, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until};

use super::{
    super::{
        config::Resilience,
        deadline::Deadline,
        fallback::Cause,
        fingerprint::Fingerprint,
        guarded::{Guarded, Origin, Sent},
    },
    leases::Leases,
    stocks::{Attempt, Payment, Stocks},
    table::RenewalState,
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, OneReply, Source, StoreReply, Verdict},
    error::{Error, ErrorKind},
    policy::{Charge, Charges},
    runtime::{before, runtime_with_timer},
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
        is_live: bool,
        /// The key, if it is busy.
        busy: Option<Fingerprint>,
    },
}

/// The renewals for which a check waits.
type Renewals = SmallVec<[RenewalState; 2]>;

/// Decides a check in the four steps of this file.
///
/// The check waits for renewals no longer than `limit`. If a renewal was not sent in half of that time, or
/// this process was late, the check asks the store itself, and waits no longer than `limit` for it.
pub(super) fn acquire(
    leases: &Arc<Leases>,
    charges: &[Charge<'_>],
    limit: Option<Duration>,
) -> Answer {
    let split = Split::new(leases, charges, true);
    match split.reply_if_paid() {
        Some(reply) => Answer::ready(Ok(reply)),
        None => acquire_rest(leases, charges, split, limit),
    }
}

/// Decides a check of one charge like [`acquire`]. If the stock pays it, the result is that of `decided`, and
/// nothing is allocated. Otherwise it is that of `asked`. A key that is not busy takes the way of a quota
/// without a lease.
#[inline(always)]
pub(in crate::remote) fn acquire_one<'p, T>(
    leases: &Arc<Leases>,
    charges: &mut Charges<'p>,
    decided: impl FnOnce(&mut Charges<'p>, OneReply) -> T,
    asked: impl FnOnce(&mut Charges<'p>, Result<Answer, Error>) -> T,
) -> T {
    let charge = &charges[0];
    let answer = match leases.pay(charge, true) {
        Attempt::Paid(Payment { time, reply, .. }) => {
            telemetry::paid_from_stock();
            return decided(charges, OneReply { time, source: Source::Leased, reply });
        }
        Attempt::Cold => {
            let request = Request::Acquire(slice::from_ref(charge));
            leases.guarded.call(request, Origin::Caller, leases.guarded.deadline)
        }
        attempt @ Attempt::Short(_) => {
            let split = Split(SmallVec::from_iter([SplitLine::new(charge, attempt)]));
            let limit = leases.guarded.deadline;
            acquire_rest(leases, slice::from_ref(charge), split, limit)
        }
    };
    asked(charges, Ok(answer))
}

/// Decides a check that the stock has not paid wholly.
#[inline(never)]
fn acquire_rest(
    leases: &Arc<Leases>,
    charges: &[Charge<'_>],
    split: Split,
    limit: Option<Duration>,
) -> Answer {
    let deadline = || limit.and_then(Deadline::new);
    let rest = split.rest(charges);
    let sent = send(leases, charges, &split, &rest, deadline, true);
    let asked_at = leases.stocks.now();
    match sent {
        Ok(Sent::Answered(reply)) => Answer::ready(split.merge(&leases.stocks, reply, asked_at)),
        Ok(Sent::Pending(call)) => {
            let (mut call, stocks) = (call.into_owned(), Arc::clone(&leases.stocks));
            // If the future is dropped, the paid charges stay paid, because the store may have charged
            // the rest.
            Answer::pending(async move { split.merge(&stocks, call.wait().await, asked_at) })
        }
        Err(renewals) => {
            let (leases, deadline) = (Arc::clone(leases), deadline());
            let charges = Charges::copy(charges);
            Answer::pending(acquire_after(leases, charges, renewals, deadline))
        }
    }
}

/// Decides a check after the renewals for which it waits.
async fn acquire_after(
    leases: Arc<Leases>,
    charges: Charges<'static>,
    mut renewals: Renewals,
    mut deadline: Option<Deadline>,
) -> Result<StoreReply, Error> {
    let mut may_wait_again = true;
    loop {
        match wait(&leases.guarded, renewals, deadline).await {
            Waited::Ended => {}
            Waited::Failed => {
                telemetry::deadline_missed();
                let (request, cause) = (Request::Acquire(&charges), Cause::Failed(missed()));
                return leases.guarded.fall_back(request, cause, Origin::Caller);
            }
            Waited::Late => {
                may_wait_again = false;
                deadline = deadline.and_then(Deadline::again);
            }
        }
        let split = Split::new(&leases, &charges, false);
        if let Some(reply) = split.reply_if_paid() {
            return Ok(reply);
        }
        let rest = split.rest(&charges);
        match send(&leases, &charges, &split, &rest, || deadline, may_wait_again) {
            Ok(sent) => {
                let asked_at = leases.stocks.now();
                return split.merge(&leases.stocks, sent.reply().await, asked_at);
            }
            Err(more) => renewals = more,
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
async fn wait(guarded: &Guarded, mut renewals: Renewals, deadline: Option<Deadline>) -> Waited {
    let start = Instant::now();
    let half = deadline.map_or(start + Resilience::DEADLINE / 2, Deadline::half);
    let sent = async {
        for renewal in &mut renewals {
            // An error means that the renewal has ended.
            let _ = renewal.wait_for(|is_sent| *is_sent).await;
        }
    };
    let mut timer = pin!(sleep_until(half));
    if before(timer.as_mut(), pin!(sent)).await.is_none() {
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
    timer.as_mut().reset(deadline.time());
    if before(timer, pin!(ended)).await.is_some() {
        return Waited::Ended;
    }
    guarded.scheduling_delay.record_timer(deadline.time());
    if guarded.scheduling_delay.was_late_since(start) { Waited::Late } else { Waited::Failed }
}

/// Asks the store for the rest of a check.
///
/// # Errors
///
/// Returns the renewals for which the check has to wait before, if it `may_wait`. The units that it has
/// taken return to their stocks, because other checks may use them meanwhile.
fn send<'r>(
    leases: &Arc<Leases>,
    charges: &[Charge<'_>],
    split: &Split,
    rest: &'r [Charge<'r>],
    deadline: impl FnOnce() -> Option<Deadline>,
    may_wait: bool,
) -> Result<Sent<'r>, Renewals> {
    let request = Request::Acquire(rest);
    // There is no wait outside of a runtime with timers, because it needs one.
    if may_wait && runtime_with_timer().is_some() {
        // The deny cache answers without a wait, and so does the fallback while the breaker is open.
        if let Some(reply) = leases.guarded.reply_without_store(request) {
            return Ok(Sent::Answered(reply));
        }
        let renewals = split.renewals(leases, charges);
        if !renewals.is_empty() {
            split.undo(&leases.stocks);
            return Err(renewals);
        }
    }
    Ok(leases.guarded.send(request, Origin::Caller, deadline))
}

impl SplitLine {
    #[inline]
    fn new(charge: &Charge<'_>, attempt: Attempt) -> Self {
        match attempt {
            Attempt::Paid(payment) => Self::Paid(payment),
            Attempt::Short(busy) => Self::Rest { is_live: charge.is_live(), busy: Some(busy) },
            Attempt::Cold => Self::Rest { is_live: charge.is_live(), busy: None },
        }
    }
}

impl Split {
    /// Pays the charges that the stock can pay. `is_new` is false for a check that has waited, which
    /// counts once as demand.
    fn new(leases: &Leases, charges: &[Charge<'_>], is_new: bool) -> Self {
        let pay = |charge| SplitLine::new(charge, leases.pay(charge, is_new));
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

    /// Returns the renewals of the busy keys whose stock is too small, which it starts if necessary.
    fn renewals(&self, leases: &Leases, charges: &[Charge<'_>]) -> Renewals {
        let lines = self.0.iter().zip(charges);
        let renewals = lines.filter_map(|(line, charge)| match line {
            SplitLine::Rest { busy: Some(busy), .. } => leases.renewal(*busy, charge),
            SplitLine::Rest { busy: None, .. } | SplitLine::Paid(_) => None,
        });
        renewals.collect()
    }

    /// Puts the units of the check into the stocks that they were taken from.
    fn undo(&self, stocks: &Stocks) {
        for line in &self.0 {
            if let SplitLine::Paid(payment) = line {
                stocks.undo(payment);
            }
        }
    }

    /// Merges the reply to the rest with the charges that are paid.
    fn merge(
        self,
        stocks: &Stocks,
        reply: Result<StoreReply, Error>,
        asked_at: u64,
    ) -> Result<StoreReply, Error> {
        let reply = reply.inspect_err(|_| self.undo(stocks))?;
        let mut rest = reply.charges.iter();
        let is_admitted = self.0.iter().all(|line| match line {
            SplitLine::Paid(_) => true,
            SplitLine::Rest { is_live, .. } => {
                let passed = rest.next().is_some_and(|it| it.verdict == Verdict::Passed);
                passed || !*is_live
            }
        });
        if !is_admitted {
            self.undo(stocks);
        }
        let mut rest = reply.charges.iter();
        let lines = self.0.iter().filter_map(|line| match line {
            SplitLine::Paid(payment) if is_admitted => {
                // A fallback cannot refund units of the shared store.
                let is_refundable = reply.source != Source::Fallback;
                let units = if is_refundable { payment.reply.units } else { 0 };
                Some(ChargeReply { units, ..payment.reply })
            }
            SplitLine::Paid(payment) => Some(payment.reply.unspent()),
            SplitLine::Rest { busy, .. } => {
                let mut charge_reply = *rest.next()?;
                if let (Some(busy), Source::Shared) = (busy, reply.source) {
                    stocks.record(*busy, asked_at, reply.time, &mut charge_reply);
                }
                Some(charge_reply)
            }
        });
        let charges = lines.collect();
        Ok(StoreReply { time: reply.time, source: reply.source, charges })
    }
}

#[cold]
fn missed() -> Error {
    Error::new(ErrorKind::Unavailable, "the store has not answered the renewal of a lease in time")
}
