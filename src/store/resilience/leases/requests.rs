//! The requests of a limiter whose charges may be under a leased quota.

use std::{sync::Arc, time::Duration};

use super::{
    super::stages::{Origin, Stages},
    check,
    leases::Leases,
};
use crate::{
    decision::{ChargeReply, Receipt, ReceiptLine, Source, StoreReply},
    error::Error,
    policy::{Charge, Charges},
    store::{Answer, Request},
};

/// Returns whether a charge of the request is under a leased quota.
#[inline]
pub(in crate::store::resilience) fn concerns(request: Request<'_>) -> bool {
    request.charges().any(|charge| charge.quota().lease().is_some())
}

/// Executes a request of which a charge is under a leased quota, and waits no longer than `limit`.
pub(in crate::store::resilience) fn call(
    stages: &Arc<Stages>,
    leases: &Leases,
    request: Request<'_>,
    limit: Option<Duration>,
) -> Answer {
    match request {
        Request::Acquire(charges) => return check::acquire(stages, leases, charges, limit),
        Request::Peek(charges) => return peek(stages, leases, charges, limit),
        Request::Force(charges) => return force(stages, leases, charges, limit),
        Request::Refund(receipt) => return refund(stages, leases, receipt, limit),
        // The store forgets the units that were leased.
        Request::Reset(charges) => leases.withdraw(stages, charges, false),
        Request::Block(charges, _) | Request::Unblock(charges) => {
            leases.withdraw(stages, charges, true)
        }
    }
    stages.call(request, Origin::Caller, limit)
}

/// Adds the units in stock to the remaining units in the reply of the store.
fn peek(
    stages: &Arc<Stages>,
    leases: &Leases,
    charges: &[Charge<'_>],
    limit: Option<Duration>,
) -> Answer {
    let before = leases.units(charges);
    let answer = stages.call(Request::Peek(charges), Origin::Caller, limit);
    finish(stages, leases, charges, answer, move |leases, charges, reply| {
        leases.add_stock(charges, &before, reply);
    })
}

/// Empties the stocks of the keys that a forced charge leaves without free units, such as that of a
/// penalty. The stock of another key stays: a settlement that costs a little more than its estimate
/// does not end the lease.
fn force(
    stages: &Arc<Stages>,
    leases: &Leases,
    charges: &[Charge<'_>],
    limit: Option<Duration>,
) -> Answer {
    let answer = stages.call(Request::Force(charges), Origin::Caller, limit);
    finish(stages, leases, charges, answer, |leases, charges, reply| {
        leases.withdraw_spent(charges, reply);
    })
}

/// Calls `then` with the reply of the store, if there is one.
fn finish(
    stages: &Arc<Stages>,
    leases: &Leases,
    charges: &[Charge<'_>],
    answer: Answer,
    then: impl FnOnce(&Leases, &[Charge<'_>], &mut StoreReply) + Send + 'static,
) -> Answer {
    match answer.now() {
        Ok(reply) => Answer::ready(reply.map(|mut reply| {
            then(leases, charges, &mut reply);
            reply
        })),
        Err(answer) => {
            let stages = Arc::clone(stages);
            let charges: Charges<'static> =
                charges.iter().cloned().map(Charge::into_owned).collect();
            Answer::pending(async move {
                let mut reply = answer.await?;
                if let Some(leases) = &stages.leases {
                    then(leases, &charges, &mut reply);
                }
                Ok(reply)
            })
        }
    }
}

/// Refunds the units of a receipt to the stocks that they were taken from, if these still have the
/// grant. The other units are refunded to the store.
fn refund(
    stages: &Arc<Stages>,
    leases: &Leases,
    receipt: &Receipt,
    limit: Option<Duration>,
) -> Answer {
    // The mark alone does not show that units are from a stock: all charges of a period may have the
    // same one, also forced charges and those of the fallback. So the units of a check that was not
    // paid wholly from stock go to the store, which also refunds the units of a grant.
    if receipt.source() != Source::Leased {
        return stages.call(Request::Refund(receipt), Origin::Caller, limit);
    }
    let local: Vec<Option<ChargeReply>> =
        receipt.lines().iter().map(|line| leases.refund(line)).collect();
    if local.iter().all(Option::is_none) {
        return stages.call(Request::Refund(receipt), Origin::Caller, limit);
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
    let answer = stages.call(Request::Refund(&rest), Origin::Caller, limit);
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
