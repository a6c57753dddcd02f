//! A check whose charges are all under leased quotas, in three steps:
//!
//! 1. [Pay](Leases::pay_all): the stocks pay all of its charges, or none.
//! 2. [Wait](Leases::acquire_busy): if the stock of a busy key is too small, the check waits for the renewals of
//!    its stocks, and pays again.
//! 3. Send: the store is asked for all charges in one call.

use std::{mem, pin::pin, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until};

use super::{
    super::{
        config::Resilience,
        fallback::Cause,
        fingerprint::Fingerprint,
        guarded::{Answered, Call, Deadline, Guarded, Origin, Step},
    },
    leases::Leases,
    stocks::Attempt,
    table::RenewalState,
};
use crate::{
    decision::{Source, StoreReply},
    error::{Error, ErrorKind},
    policy::{Charge, Charges},
    runtime::{before, runtime_with_timer},
    store::Request,
    telemetry,
};

/// The keys of a check that the stocks cannot pay, in the order of the charges. A key that is not busy is `None`.
type UnpaidKeys = SmallVec<[Option<Fingerprint>; 2]>;

/// The renewals for which a check waits.
type Renewals = SmallVec<[RenewalState; 2]>;

/// The number of times that a check waits for renewals. The first renewal of a key that has just become busy is
/// too small for all that wait for it, but it shows the demand.
const MAX_WAITS: usize = 2;

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
        let keys = match self.pay_all(charges, true) {
            Ok(reply) => return Step::Decided(Ok(reply)),
            Err(keys) => keys,
        };
        // A wait needs a timer.
        if !keys.iter().all(Option::is_some) || runtime_with_timer().is_none() {
            return self.guarded.acquire(charges, limit);
        }
        // The deny cache decides without a wait, and so does the fallback while the breaker is open.
        if let Some(reply) = self.guarded.reply_without_store(Request::Acquire(charges)) {
            return Step::Decided(reply);
        }
        let charges = mem::take(charges).into_owned();
        Step::Waits(Call::boxed(Arc::clone(self).acquire_busy(charges, keys, limit)))
    }

    /// Pays all charges from stock. `is_new` is false for a check that has waited, which counts once as demand.
    ///
    /// A check with a key that is not busy is no demand for its other keys, because their stocks cannot pay it.
    ///
    /// # Errors
    ///
    /// Returns the keys if the stocks cannot pay all charges. The stocks then have their units again.
    fn pay_all(&self, charges: &[Charge<'_>], is_new: bool) -> Result<StoreReply, UnpaidKeys> {
        let has_several = charges.len() > 1;
        let attempts: SmallVec<[Attempt; 1]> =
            charges.iter().map(|charge| self.pay(charge, is_new && !has_several)).collect();
        let keys: UnpaidKeys = attempts.iter().map(Attempt::key).collect();
        if is_new && has_several && keys.iter().all(Option::is_some) {
            let now = self.stocks.now();
            for (key, charge) in keys.iter().flatten().zip(charges) {
                self.stocks.with_stock(*key, |entry| entry.stock.observe(now, charge.cost()));
            }
        }
        let payments = attempts.iter().filter_map(Attempt::payment);
        if payments.clone().count() < charges.len() {
            payments.for_each(|payment| self.stocks.undo(payment));
            return Err(keys);
        }
        telemetry::paid_from_stock();
        let time = payments.clone().map(|payment| payment.time).max().unwrap_or_default();
        Ok(StoreReply::new(time, Source::Leased, payments.map(|payment| payment.reply)))
    }

    /// Waits for the stocks of busy keys, or asks the store.
    async fn acquire_busy(
        self: Arc<Self>,
        mut charges: Charges<'static>,
        mut keys: UnpaidKeys,
        limit: Option<Duration>,
    ) -> Answered<'static> {
        let mut deadline = limit.and_then(Deadline::new);
        for _ in 0..MAX_WAITS {
            let lines = keys.iter().zip(charges.iter());
            let renewals: Renewals =
                lines.filter_map(|(key, charge)| self.renewal((*key)?, charge)).collect();
            if renewals.is_empty() {
                break;
            }
            let waited = wait(&self.guarded, renewals, deadline).await;
            if let Waited::Failed = waited {
                telemetry::deadline_missed();
                let (request, cause) = (Request::Acquire(&charges), Cause::Failed(missed()));
                let reply = self.guarded.fall_back(request, cause, Origin::Caller);
                return (charges, reply);
            }
            keys = match self.pay_all(&charges, false) {
                Ok(reply) => return (charges, Ok(reply)),
                Err(keys) => keys,
            };
            if let Waited::Late = waited {
                deadline = deadline.and_then(Deadline::again);
                break;
            }
        }
        let asked_at = self.stocks.now();
        let (charges, mut reply) =
            match self.guarded.acquire(&mut charges, deadline.map(Deadline::rest)) {
                Step::Decided(reply) => (charges, reply),
                Step::Waits(call) => call.await,
            };
        if let Ok(StoreReply { time, source: Source::Shared, charges }) = &mut reply {
            for (key, reply) in keys.into_iter().zip(charges) {
                if let Some(key) = key {
                    self.stocks.record(key, asked_at, *time, reply);
                }
            }
        }
        (charges, reply)
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
