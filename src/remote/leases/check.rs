//! A check whose charges are all under leased quotas, in three steps:
//!
//! 1. [Pay](Leases::pay_all): the stocks pay all of its charges, or none.
//! 2. [Wait](Leases::wait_and_acquire): if the stock of a busy key is too small, the check waits for the renewal
//!    of the stock, and begins again, at most twice.
//! 3. [Send](Leases::send): the store is asked for all charges in one call.

use std::{pin::pin, sync::Arc};

use smallvec::SmallVec;
use tokio::time::{Duration, Instant, sleep_until};

use super::{
    super::{
        config::Resilience,
        deadline::Deadline,
        fallback::Cause,
        fingerprint::Fingerprint,
        guarded::{Answered, Call, Guarded, Origin, Step},
    },
    leases::Leases,
    stocks::{Attempt, Stocks},
    table::RenewalState,
};
use crate::{
    clock::Timestamp,
    decision::{Source, StoreReply},
    error::{Error, ErrorKind},
    policy::{Charge, Charges},
    runtime::{before, runtime_with_timer},
    store::Request,
    telemetry,
};

/// The charges of a check that the stocks have not paid, in their order.
type Unpaid = SmallVec<[UnpaidCharge; 2]>;

#[derive(Debug, Clone, Copy)]
enum UnpaidCharge {
    /// The key is not busy.
    Cold,
    /// The stock of the key is too small.
    Short(Fingerprint),
    /// The stock of the key could pay, but that of another charge could not.
    PutBack(Fingerprint),
}

/// The renewals for which a check waits.
type Renewals = SmallVec<[RenewalState; 2]>;

impl Leases {
    /// Begins a check whose charges are all [leased](super::is_leased).
    ///
    /// The check waits for renewals no longer than `limit`. If a renewal was not sent in half of that time, or
    /// this process was late, the check asks the store itself, and waits no longer than `limit` for it.
    pub(in crate::remote) fn acquire<'p>(
        self: &Arc<Self>,
        charges: &mut Charges<'p>,
        limit: Option<Duration>,
    ) -> Step<Call<'p>> {
        let unpaid = match self.pay_all(charges, true) {
            Ok(reply) => return Step::Decided(Ok(reply)),
            Err(unpaid) => unpaid,
        };
        match self.renewals_to_await(charges, &unpaid) {
            Step::Decided(reply) => Step::Decided(reply),
            Step::Waits(renewals) if renewals.is_empty() => self.send(charges, unpaid, limit),
            Step::Waits(renewals) => {
                let charges = std::mem::take(charges).into_owned();
                let deadline = limit.and_then(Deadline::new);
                let leases = Arc::clone(self);
                Step::Waits(Call::boxed(leases.wait_and_acquire(charges, renewals, deadline)))
            }
        }
    }

    /// Pays all charges from stock. `is_new` is false for a check that has waited, which counts once as demand.
    ///
    /// # Errors
    ///
    /// Returns a line for each charge if the stocks cannot pay all of them. They then have their units again.
    fn pay_all(&self, charges: &[Charge<'_>], is_new: bool) -> Result<StoreReply, Unpaid> {
        let attempts: SmallVec<[Attempt; 1]> =
            charges.iter().map(|charge| self.pay(charge, is_new)).collect();
        let mut time = Timestamp::default();
        let mut replies = SmallVec::new();
        for attempt in &attempts {
            let Attempt::Paid(payment) = attempt else {
                let put_back = |attempt| UnpaidCharge::put_back(attempt, &self.stocks);
                return Err(attempts.iter().map(put_back).collect());
            };
            time = time.max(payment.time);
            replies.push(payment.reply);
        }
        telemetry::paid_from_stock();
        Ok(StoreReply { time, source: Source::Leased, charges: replies })
    }

    /// Returns the renewals for which a check waits before the store is asked, and starts them if necessary.
    /// There is none if a key is not busy, because the store is then asked for all charges. The deny cache
    /// decides without a wait, and so does the fallback while the breaker is open.
    fn renewals_to_await(&self, charges: &[Charge<'_>], unpaid: &Unpaid) -> Step<Renewals> {
        let has_cold = unpaid.iter().any(|it| matches!(it, UnpaidCharge::Cold));
        // A wait needs a timer.
        if has_cold || runtime_with_timer().is_none() {
            return Step::Waits(Renewals::new());
        }
        if let Some(reply) = self.guarded.reply_without_store(Request::Acquire(charges)) {
            return Step::Decided(reply);
        }
        let lines = unpaid.iter().zip(charges);
        let renewals = lines.filter_map(|(line, charge)| match line {
            UnpaidCharge::Short(key) => self.renewal(*key, charge),
            UnpaidCharge::Cold | UnpaidCharge::PutBack(_) => None,
        });
        Step::Waits(renewals.collect())
    }

    /// Waits for renewals, and decides the check then.
    async fn wait_and_acquire(
        self: Arc<Self>,
        mut charges: Charges<'static>,
        mut renewals: Renewals,
        mut deadline: Option<Deadline>,
    ) -> Answered<'static> {
        let mut may_wait_again = true;
        loop {
            match wait(&self.guarded, renewals, deadline).await {
                Waited::Ended => {}
                Waited::Failed => {
                    telemetry::deadline_missed();
                    let (request, cause) = (Request::Acquire(&charges), Cause::Failed(missed()));
                    let reply = self.guarded.fall_back(request, cause, Origin::Caller);
                    return (charges, reply);
                }
                Waited::Late => {
                    may_wait_again = false;
                    deadline = deadline.and_then(Deadline::again);
                }
            }
            let unpaid = match self.pay_all(&charges, false) {
                Ok(reply) => return (charges, Ok(reply)),
                Err(unpaid) => unpaid,
            };
            let more = match may_wait_again {
                true => self.renewals_to_await(&charges, &unpaid),
                false => Step::Waits(Renewals::new()),
            };
            match more {
                Step::Decided(reply) => return (charges, reply),
                Step::Waits(more) if more.is_empty() => {
                    let limit = deadline.map(Deadline::rest);
                    return match self.send(&mut charges, unpaid, limit) {
                        Step::Decided(reply) => (charges, reply),
                        Step::Waits(call) => call.await,
                    };
                }
                Step::Waits(more) => renewals = more,
            }
            // The first renewal of a key that has just become busy is too small for all that wait for it, but
            // it shows the demand. So a check waits twice at most, and then asks the store.
            may_wait_again = false;
        }
    }

    /// Asks the store for all charges of a check, and records its replies about busy keys.
    fn send<'p>(
        self: &Arc<Self>,
        charges: &mut Charges<'p>,
        unpaid: Unpaid,
        limit: Option<Duration>,
    ) -> Step<Call<'p>> {
        let asked_at = self.stocks.now();
        match self.guarded.acquire(charges, limit) {
            Step::Decided(mut reply) => {
                self.stocks.record_all(&unpaid, asked_at, &mut reply);
                Step::Decided(reply)
            }
            Step::Waits(call) if unpaid.iter().all(|it| it.key().is_none()) => Step::Waits(call),
            Step::Waits(call) => {
                let (call, stocks) = (call.into_owned(), Arc::clone(&self.stocks));
                Step::Waits(Call::boxed(async move {
                    let (charges, mut reply) = call.await;
                    stocks.record_all(&unpaid, asked_at, &mut reply);
                    (charges, reply)
                }))
            }
        }
    }
}

impl UnpaidCharge {
    /// Puts the units of a charge back, if its stock has paid it.
    fn put_back(attempt: &Attempt, stocks: &Stocks) -> Self {
        match attempt {
            Attempt::Cold => Self::Cold,
            Attempt::Short(key) => Self::Short(*key),
            Attempt::Paid(payment) => {
                stocks.undo(payment);
                Self::PutBack(payment.fingerprint)
            }
        }
    }

    /// Returns the key, if it is busy.
    fn key(self) -> Option<Fingerprint> {
        match self {
            Self::Cold => None,
            Self::Short(key) | Self::PutBack(key) => Some(key),
        }
    }
}

impl Stocks {
    /// Records the store's replies to charges under busy keys.
    fn record_all(&self, unpaid: &Unpaid, asked_at: u64, reply: &mut Result<StoreReply, Error>) {
        let Ok(StoreReply { time, source: Source::Shared, charges }) = reply else { return };
        for (line, reply) in unpaid.iter().zip(charges) {
            if let Some(key) = line.key() {
                self.record(key, asked_at, *time, reply);
            }
        }
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

#[cold]
fn missed() -> Error {
    Error::new(ErrorKind::Unavailable, "the store has not answered the renewal of a lease in time")
}
