//! A check whose charges are all under leased quotas: the stocks pay all of them, or the store is asked for all of
//! them in one call.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{
    super::guarded::{Call, Step},
    leases::Leases,
    stocks::Attempt,
};
use crate::{
    decision::{Source, StoreReply},
    policy::{Charge, Charges},
    telemetry,
};

/// The reason why the stocks cannot pay a check.
enum Unpaid {
    /// A stock is too small.
    Short,
    /// A key is not busy.
    Cold,
}

impl Leases {
    /// Begins a check whose charges are all [leased](super::is_leased), and waits no longer than `limit` for the
    /// store.
    pub(in crate::remote) fn acquire<'p>(
        &self,
        charges: &mut Charges<'p>,
        limit: Option<Duration>,
    ) -> Step<Call<'p>> {
        let unpaid = match self.pay_all(charges) {
            Ok(reply) => return Step::Decided(Ok(reply)),
            Err(unpaid) => unpaid,
        };
        let asked_at = self.stocks.now();
        match self.stocks.guarded.acquire(charges, limit) {
            Step::Decided(mut reply) => {
                self.stocks.record(charges, asked_at, &mut reply);
                Step::Decided(reply)
            }
            Step::Waits(call) => match unpaid {
                Unpaid::Cold => Step::Waits(call),
                Unpaid::Short => {
                    let (stocks, call) = (Arc::clone(&self.stocks), call.into_owned());
                    Step::Waits(Call::boxed(async move {
                        let (charges, mut reply) = call.await;
                        stocks.record(&charges, asked_at, &mut reply);
                        (charges, reply)
                    }))
                }
            },
        }
    }

    /// Pays all charges from stock.
    ///
    /// A check with a key that is not busy is no demand for its other keys, because their stocks cannot pay it.
    ///
    /// # Errors
    ///
    /// Returns the reason if the stocks cannot pay all charges. The stocks then have their units again.
    fn pay_all(&self, charges: &[Charge<'_>]) -> Result<StoreReply, Unpaid> {
        let is_alone = charges.len() == 1;
        let attempts: SmallVec<[Attempt; 1]> =
            charges.iter().map(|charge| self.pay(charge, is_alone)).collect();
        let is_cold = attempts.iter().any(|attempt| matches!(attempt, Attempt::Cold));
        if !is_alone && !is_cold {
            self.stocks.observe(charges);
        }
        let payments = attempts.iter().filter_map(Attempt::payment);
        if payments.clone().count() < charges.len() {
            payments.for_each(|payment| self.stocks.undo(payment));
            return Err(if is_cold { Unpaid::Cold } else { Unpaid::Short });
        }
        telemetry::paid_from_stock();
        let time = payments.clone().map(|payment| payment.time).max().unwrap_or_default();
        Ok(StoreReply::new(time, Source::Leased, payments.map(|payment| payment.reply)))
    }
}
