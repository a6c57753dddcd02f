//! The requests of a limiter whose charges may be under a leased quota.

use std::{sync::Arc, time::Duration};

use super::{
    super::guarded::{Origin, Step, StoreCall},
    leases::Leases,
    stocks::Stocks,
};
use crate::{
    decision::{ChargeReply, Receipt, ReceiptLine, Source, StoreReply},
    error::{Effect, Error},
    policy::Charge,
    store::{Answer, Request},
};

/// Returns whether a charge of the request is under a leased quota.
#[inline]
pub(in crate::remote) fn concerns(request: Request<'_>) -> bool {
    request.charges().any(|charge| charge.quota().lease().is_some())
}

/// Executes a request of which a charge is under a leased quota, and waits no longer than `limit`. A check
/// comes in through [`Leases::acquire`].
pub(in crate::remote) fn call(
    leases: &Arc<Leases>,
    request: Request<'_>,
    limit: Option<Duration>,
) -> Answer {
    match request {
        Request::Acquire(_) => {}
        Request::Peek(charges) => return peek(leases, charges, limit),
        Request::Force(charges) => return force(leases, charges, limit),
        Request::Refund(receipt) => return refund(leases, receipt, limit),
        // The store forgets the units that were leased.
        Request::Reset(charges) => leases.withdraw(charges, false),
        Request::Block(charges, _) | Request::Unblock(charges) => leases.withdraw(charges, true),
    }
    leases.guarded.call(request, Origin::Caller, limit)
}

/// Adds the units in stock to the remaining units in the reply of the store.
fn peek(leases: &Arc<Leases>, charges: &[Charge<'_>], limit: Option<Duration>) -> Answer {
    let before = leases.stocks.units(charges);
    match leases.guarded.send_copy(Request::Peek(charges), Origin::Caller, limit) {
        Step::Decided(reply) => Answer::ready(reply.map(|mut reply| {
            leases.stocks.add_stock(charges, &before, &mut reply);
            reply
        })),
        Step::Waits(call) => {
            let stocks = Arc::clone(&leases.stocks);
            Answer::pending(async move {
                let (charges, reply) = call.await;
                let mut reply = reply?;
                stocks.add_stock(&charges, &before, &mut reply);
                Ok(reply)
            })
        }
    }
}

/// Refunds units in stock for a charge beyond the limit, such as that of a penalty, so that the stock does
/// not hide it. The stock of a key that has free units stays.
fn force(leases: &Arc<Leases>, charges: &[Charge<'_>], limit: Option<Duration>) -> Answer {
    match leases.guarded.send_copy(Request::Force(charges), Origin::Caller, limit) {
        Step::Decided(reply) => {
            end_force(&leases.stocks, charges, &reply);
            Answer::ready(reply)
        }
        Step::Waits(call) => {
            let stocks = Arc::clone(&leases.stocks);
            let mut force = ForceCall { stocks, call, has_ended: false };
            Answer::pending(async move {
                let (charges, reply) = (&mut force.call).await;
                force.has_ended = true;
                end_force(&force.stocks, &charges, &reply);
                reply
            })
        }
    }
}

/// A call with forced charges. If it is dropped, the store may have made them.
struct ForceCall {
    stocks: Arc<Stocks>,
    call: StoreCall<'static>,
    has_ended: bool,
}

impl Drop for ForceCall {
    fn drop(&mut self) {
        if !self.has_ended {
            self.stocks.pay_unanswered(self.call.charges());
        }
    }
}

fn end_force(stocks: &Stocks, charges: &[Charge<'_>], reply: &Result<StoreReply, Error>) {
    match reply {
        Ok(reply) => stocks.pay_forced(charges, reply),
        Err(error) if error.effect() == Effect::None => {}
        Err(_) => stocks.pay_unanswered(charges),
    }
}

/// Refunds the units of a receipt to the stocks that they were taken from, if these still have the
/// grant. The other units are refunded to the store.
fn refund(leases: &Arc<Leases>, receipt: &Receipt, limit: Option<Duration>) -> Answer {
    // The mark alone does not show that units are from a stock: all charges of a period may have the
    // same one, also forced charges and those of the fallback. So the units of a check that was not
    // paid wholly from stock go to the store, which also refunds the units of a grant.
    if receipt.source() != Source::Leased {
        return leases.guarded.call(Request::Refund(receipt), Origin::Caller, limit);
    }
    let local: Vec<Option<ChargeReply>> =
        receipt.lines().iter().map(|line| leases.stocks.refund(line)).collect();
    if local.iter().all(Option::is_none) {
        return leases.guarded.call(Request::Refund(receipt), Origin::Caller, limit);
    }
    let time = receipt.time();
    if local.iter().all(Option::is_some) {
        let charges = local.into_iter().flatten().collect();
        return Answer::ready(Ok(StoreReply { time, source: Source::Leased, charges }));
    }
    let rest = receipt.lines().iter().zip(&local).filter(|(_, reply)| reply.is_none());
    let rest =
        rest.map(|(line, _)| ReceiptLine::new(line.charge().clone(), line.units(), line.mark()));
    let rest = Receipt::new(time, receipt.source(), rest);
    let answer = leases.guarded.call(Request::Refund(&rest), Origin::Caller, limit);
    let join = move |reply: Result<StoreReply, Error>| {
        let reply = reply?;
        let mut rest = reply.charges.into_iter();
        let charges = local.into_iter().filter_map(|local| local.or_else(|| rest.next()));
        Ok(StoreReply { charges: charges.collect(), ..reply })
    };
    match answer.now() {
        Ok(reply) => Answer::ready(join(reply)),
        Err(answer) => Answer::pending(async move { join(answer.await) }),
    }
}
