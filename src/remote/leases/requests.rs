//! The requests of a limiter whose charges may be under a leased quota.

use std::{slice, sync::Arc, time::Duration};

use super::{
    super::guarded::{Origin, then},
    leases::Leases,
    stocks::Stocks,
};
use crate::{
    decision::{ChargeReply, Receipt, ReceiptLine, Source, StoreReply},
    error::{Effect, Error},
    policy::{Charge, Charges},
    store::{Answer, Request},
};

/// Returns whether a charge of the request is under a leased quota.
pub(in crate::remote) fn concerns(request: Request<'_>) -> bool {
    request.charges().any(|charge| charge.quota().lease().is_some())
}

impl Leases {
    /// Executes a request of which a charge is under a leased quota, and waits no longer than `limit`. A check
    /// comes in through [`Leases::acquire`].
    pub(in crate::remote) fn call(&self, request: Request<'_>, limit: Option<Duration>) -> Answer {
        match request {
            Request::Acquire(_) => {}
            Request::Peek(charges) => return self.peek(charges, limit),
            Request::Force(charges) => return self.force(charges, limit),
            Request::Refund(receipt) => return self.refund(receipt, limit),
            // The store forgets the units that were leased.
            Request::Reset(charges) => self.withdraw(charges, false),
            Request::Block(charges, _) | Request::Unblock(charges) => self.withdraw(charges, true),
        }
        self.stocks.guarded.call(request, Origin::Caller, limit)
    }

    /// Adds the units in stock to the remaining units in the reply of the store.
    fn peek(&self, charges: &[Charge<'_>], limit: Option<Duration>) -> Answer {
        let stocks = Arc::clone(&self.stocks);
        let owned = Charges::copy(charges);
        let answer = stocks.guarded.call(Request::Peek(charges), Origin::Caller, limit);
        then(answer, move |mut reply| {
            if let Ok(reply) = &mut reply {
                stocks.add_stock(&owned, reply);
            }
            reply
        })
    }

    /// Refunds the stock for a charge beyond the limit, such as a penalty, so that the stock does not hide it. The
    /// stock of a key that has free units stays.
    fn force(&self, charges: &[Charge<'_>], limit: Option<Duration>) -> Answer {
        let stocks = Arc::clone(&self.stocks);
        let forced = Forced { stocks, charges: Charges::copy(charges), has_ended: false };
        let answer = self.stocks.guarded.call(Request::Force(charges), Origin::Caller, limit);
        then(answer, move |reply| forced.end(reply))
    }

    /// Refunds the units of a receipt to the stocks that they were taken from, if these still have the
    /// grant. The other units are refunded to the store.
    fn refund(&self, receipt: &Receipt, limit: Option<Duration>) -> Answer {
        // The mark alone does not show that units are from a stock: all charges of a period may have the
        // same one, also forced charges and charges of the fallback. So the units of a check that was not
        // paid wholly from stock go to the store, which also refunds the units of a grant.
        if receipt.source != Source::Leased {
            return self.stocks.guarded.call(Request::Refund(receipt), Origin::Caller, limit);
        }
        let local: Vec<Option<ChargeReply>> =
            receipt.lines().iter().map(|line| self.stocks.refund(line)).collect();
        if local.iter().all(Option::is_none) {
            return self.stocks.guarded.call(Request::Refund(receipt), Origin::Caller, limit);
        }
        let time = receipt.time;
        if local.iter().all(Option::is_some) {
            let charges = local.into_iter().flatten().collect();
            return Answer::ready(Ok(StoreReply { time, source: Source::Leased, charges }));
        }
        let left = receipt.lines().iter().zip(&local).filter(|(_, reply)| reply.is_none());
        let lines =
            left.map(|(line, _)| ReceiptLine::new(line.charge.clone(), line.units, line.mark));
        let rest = Receipt::new(time, receipt.source, lines);
        let answer = self.stocks.guarded.call(Request::Refund(&rest), Origin::Caller, limit);
        then(answer, move |reply| {
            // The units of the other lines are back in the stock.
            let reply = reply.map_err(|error| {
                let effect = error.effect().max(Effect::Applied);
                error.with_effect(effect)
            })?;
            let mut rest = reply.charges.into_iter();
            let charges = local.into_iter().filter_map(|local| local.or_else(|| rest.next()));
            Ok(StoreReply { charges: charges.collect(), ..reply })
        })
    }
}

/// A call with forced charges. If it is dropped, the store may have made them.
struct Forced {
    stocks: Arc<Stocks>,
    charges: Charges<'static>,
    has_ended: bool,
}

impl Forced {
    fn end(mut self, reply: Result<StoreReply, Error>) -> Result<StoreReply, Error> {
        self.has_ended = true;
        match &reply {
            Ok(reply) => {
                let lines = self.charges.iter().zip(&reply.charges);
                let spent = lines.filter(|(_, reply)| reply.standing.remaining == 0);
                spent.for_each(|(charge, _)| self.withdraw(charge));
            }
            Err(error) if error.effect() == Effect::None => {}
            Err(_) => self.charges.iter().for_each(|charge| self.withdraw(charge)),
        }
        reply
    }

    fn withdraw(&self, charge: &Charge<'_>) {
        if self.stocks.has_stock(charge) {
            self.stocks.withdraw(slice::from_ref(charge), true);
        }
    }
}

impl Drop for Forced {
    fn drop(&mut self) {
        if !self.has_ended {
            self.charges.iter().for_each(|charge| self.withdraw(charge));
        }
    }
}
