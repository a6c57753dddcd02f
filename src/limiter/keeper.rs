//! The keeper: the thread that renews the permits that have reached a quarter of their expiry, and sends the
//! releases of a remote store. It starts with the first permit or release of a limiter, and ends with the limiter.
//!
//! It has a runtime of its own, so a unit does not expire while the program polls none of its runtimes.
//!
//! A renewal charges the new units, beyond the limit, and then releases the old ones. So the units are counted
//! twice between the two requests, and never too few are counted.

use std::sync::{Arc, Weak};

use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
    time::timeout,
};

use super::{
    permit_table::{DuePermit, PermitId},
    sender::send_releases,
    state::LimiterState,
};
use crate::{
    decision::{Receipt, ReceiptLine, Source, StoreReply},
    error::Error,
    policy::{Charge, Charges},
    runtime::run_on_own_thread,
    store::Request,
};

/// The most requests in flight that renew.
const MAX_RENEWALS: usize = 16;
/// The most permits that a request renews.
const MAX_BATCH: usize = 32;

/// Starts the keeper, unless it runs.
pub(super) fn start(limiter: &Arc<LimiterState>) {
    let Some(running) = limiter.keeper.set() else { return };
    let state = Arc::downgrade(limiter);
    let wakes_sender = Arc::clone(&limiter.releases.wakes_sender);
    let wakes_keeper = Arc::clone(&limiter.permits.wakes_keeper);
    run_on_own_thread(async move {
        let _running = running;
        tokio::spawn(send_releases(state.clone(), wakes_sender));
        renew_permits(state, wakes_keeper).await;
    });
}

/// Releases the units of a receipt, all of which are in flight. Those of an embedded store are free at once.
pub(super) fn release(limiter: &Arc<LimiterState>, receipt: Receipt) {
    if limiter.store.release_now(&receipt) {
        return;
    }
    if receipt.source() == Source::Fallback {
        // The fallback answers at once.
        drop(limiter.store.call(Request::Refund(&receipt)));
    } else {
        limiter.releases.push(receipt);
        start(limiter);
    }
}

/// Renews permits until the limiter ends.
async fn renew_permits(limiter: Weak<LimiterState>, wakes: Arc<Notify>) {
    let (mut calls, places) = (JoinSet::new(), Arc::new(Semaphore::new(MAX_RENEWALS)));
    while let Some(state) = limiter.upgrade() {
        while calls.try_join_next().is_some() {}
        let due = state.permits.begin_round();
        let interval = due.is_some().then(|| state.permits.interval());
        for batch in RenewalBatch::form(&state, due.unwrap_or_default()) {
            calls.spawn(renew(limiter.clone(), batch, Arc::clone(&places)));
        }
        drop(state);
        match interval {
            Some(interval) => drop(timeout(interval, wakes.notified()).await),
            None => wakes.notified().await,
        }
    }
}

/// Charges the units of some permits again, and then releases the old ones. If the store cannot answer, the next
/// round tries again.
async fn renew(limiter: Weak<LimiterState>, batch: RenewalBatch, places: Arc<Semaphore>) {
    let Ok(_place) = places.acquire().await else { return };
    let mut batches = vec![batch];
    while let Some(batch) = batches.pop() {
        let Some(state) = limiter.upgrade() else { return };
        let answer = state.store.call_in_background(Request::Force(&batch.charges));
        drop(state);
        let reply = answer.await;
        let Some(state) = limiter.upgrade() else { return };
        // A key that the store refuses is refused without the others.
        if reply.as_ref().is_err_and(|error| !error.is_unavailable()) && batch.permits.len() > 1 {
            let permits = batch.permits.into_iter();
            batches.extend(permits.map(|it| RenewalBatch::of(it.id, it.charges)));
            continue;
        }
        for (id, renewed) in batch.receipts(&reply) {
            if let Some(receipt) = state.permits.end_renewal(id, renewed) {
                release(&state, receipt);
            }
        }
    }
}

/// Permits that one request renews. Units of the same key are charged together, and have the same mark.
#[derive(Default)]
struct RenewalBatch {
    charges: Charges<'static>,
    permits: Vec<RenewedPermit>,
}

struct RenewedPermit {
    id: PermitId,
    charges: Vec<Charge<'static>>,
    /// The positions of its charges in the request.
    positions: Vec<usize>,
}

impl RenewalBatch {
    /// Forms batches. The permits of a batch depend on the same node and, in a store of several parts, on the same
    /// part. So they are not renewed too late because another node or part cannot answer.
    fn form(state: &LimiterState, mut due: Vec<DuePermit>) -> Vec<Self> {
        let of = |charges: &[Charge<'_>]| {
            let part = charges.iter().any(|charge| charge.renews() == Some(true));
            (part, charges.first().map(|charge| state.store.node(charge).0))
        };
        due.sort_by_cached_key(|(_, charges)| of(charges));
        let (mut batches, mut last) = (Vec::<Self>::new(), None);
        for (id, charges) in due {
            let depends_on = Some(of(&charges));
            match batches.last_mut() {
                Some(batch) if last == depends_on && batch.has_room(&charges) => {
                    batch.add(id, charges)
                }
                _ => batches.push(Self::of(id, charges)),
            }
            last = depends_on;
        }
        batches
    }

    fn of(id: PermitId, charges: Vec<Charge<'static>>) -> Self {
        let mut batch = Self::default();
        batch.add(id, charges);
        batch
    }

    fn has_room(&self, charges: &[Charge<'_>]) -> bool {
        self.permits.len() < MAX_BATCH && self.charges.len() + charges.len() <= Charges::MAX
    }

    fn add(&mut self, id: PermitId, charges: Vec<Charge<'static>>) {
        let positions = charges.iter().map(|charge| self.charges.add(charge.clone())).collect();
        self.permits.push(RenewedPermit { id, charges, positions });
    }

    /// Returns the permits, each with the receipt of its new units if the store has charged them.
    fn receipts(
        self,
        reply: &Result<StoreReply, Error>,
    ) -> impl Iterator<Item = (PermitId, Option<Receipt>)> {
        self.permits.into_iter().map(move |RenewedPermit { id, charges, positions }| {
            let receipt = reply.as_ref().ok().map(|reply| {
                let lines = charges.into_iter().zip(positions).filter_map(|(charge, position)| {
                    let reply = reply.charges.get(position)?;
                    let units = charge.cost().min(reply.units);
                    Some(ReceiptLine::new(charge, units, reply.mark))
                });
                Receipt::new(reply.time, reply.source, lines)
            });
            (id, receipt)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::{Decision, Limiter, Policy, Quota};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it waits for a thread")]
    fn the_thread_ends_with_the_limiter() {
        let limiter = Limiter::in_memory();
        let jobs = Policy::new("jobs", Quota::concurrent(1)).unwrap();
        let Decision::Allowed(allowed) = limiter.check_now(jobs.charge("all", 1)).unwrap() else {
            panic!("it is free")
        };
        let held = limiter.hold(allowed.into_receipt());
        let wakes = Arc::clone(&limiter.0.permits.wakes_keeper);
        assert_eq!(Arc::strong_count(&wakes), 3, "the table, the thread and this test");
        drop((held, limiter));
        let start = Instant::now();
        while Arc::strong_count(&wakes) > 1 {
            assert!(start.elapsed() < Duration::from_secs(30), "the thread goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
