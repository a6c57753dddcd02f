//! The keeper: the thread that renews the permits that have reached a quarter of their expiry, and sends the
//! releases of a remote store. It starts with the first permit or release of a limiter, and ends with the limiter.
//!
//! It has a runtime of its own, so a unit does not expire while the program polls none of its runtimes.
//!
//! A renewal charges the new units, beyond the limit, and then releases the old ones. So the units are counted
//! twice between the two requests, and never too few are counted.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{in_flight::DuePermit, state::LimiterState};
use crate::{
    decision::{Receipt, ReceiptLine, Source, StoreReply},
    error::{Effect, Error, ErrorKind},
    policy::{Charge, Charges},
    runtime::{run_on_own_thread, runtime_with_timer},
    store::Request,
};

/// The most requests in flight that renew.
const MAX_RENEWALS: usize = 16;
/// The most permits that a request renews.
const MAX_BATCH: usize = Charges::MAX;
/// The longest time for which the end of a limiter waits for the releases.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two attempts to release while the store cannot answer.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

impl LimiterState {
    /// Starts the keeper, unless it runs.
    pub(super) fn start_keeper(self: &Arc<Self>) {
        if self.keeper.is_set() {
            return;
        }
        let Some(running) = self.keeper.set() else { return };
        let limiter = Arc::downgrade(self);
        let wakes_renewals = Arc::clone(&self.units.wakes_renewals);
        let wakes_releases = Arc::clone(&self.units.wakes_releases);
        run_on_own_thread(async move {
            let _running = running;
            tokio::spawn(send_releases(limiter.clone(), wakes_releases));
            renew_permits(limiter, wakes_renewals).await;
        });
    }

    /// Releases the units of a receipt, all of which are in flight. Those of an embedded store are free at once.
    pub(super) fn release(self: &Arc<Self>, receipt: Receipt) {
        if self.store.release_now(&receipt) {
            return;
        }
        if receipt.source == Source::Fallback {
            // The fallback answers at once.
            drop(self.store.call(Request::Refund(&receipt)));
        } else {
            self.units.release(receipt);
            self.start_keeper();
        }
    }

    /// Sends all releases that wait, after the one in flight. Returns the first error, or an error after
    /// [`CLOSE_TIMEOUT`]: the store may never answer.
    pub(super) async fn send_all_released(&self) -> Result<(), Error> {
        let all = async {
            while self.send_released().await? {}
            Ok(())
        };
        if runtime_with_timer().is_none() {
            return all.await;
        }
        let late = |_| Err(Error::new(ErrorKind::Deadline, "the store has not released all units"));
        timeout(CLOSE_TIMEOUT, all).await.unwrap_or_else(late)
    }

    /// Sends releases that wait, in one request. Returns false if there are none.
    ///
    /// Without an answer, the units may have been released. They are not released again, because by then another
    /// request may have them.
    async fn send_released(&self) -> Result<bool, Error> {
        let _one_at_a_time = self.units.sending.lock().await;
        let Some(batch) = self.units.take_released() else { return Ok(false) };
        let reply = self.store.call_in_background(Request::Refund(&batch.receipt)).await;
        if reply.as_ref().is_err_and(was_not_sent) {
            self.units.put_back(batch);
        }
        reply.map(|_| true)
    }
}

/// Returns whether a refund that ended with this error can be sent again: the store could not answer, and has
/// refunded nothing.
pub(super) fn was_not_sent(error: &Error) -> bool {
    error.is_unavailable() && error.effect() == Effect::None
}

/// Sends releases until the limiter ends. Those that come while a request is in flight are sent together in the
/// next one.
async fn send_releases(limiter: Weak<LimiterState>, wakes: Arc<Notify>) {
    while let Some(state) = limiter.upgrade() {
        let sent = state.send_released().await;
        drop(state);
        match sent {
            Ok(true) => {}
            Ok(false) => wakes.notified().await,
            Err(_) => sleep(RETRY_INTERVAL).await,
        }
    }
}

/// Renews permits until the limiter ends.
async fn renew_permits(limiter: Weak<LimiterState>, wakes: Arc<Notify>) {
    let (mut calls, places) = (JoinSet::new(), Arc::new(Semaphore::new(MAX_RENEWALS)));
    while let Some(state) = limiter.upgrade() {
        while calls.try_join_next().is_some() {}
        let round = state.units.begin_round();
        let Some((due, interval)) = round else {
            drop(state);
            wakes.notified().await;
            continue;
        };
        for batch in batches(&state, due) {
            calls.spawn(renew(limiter.clone(), batch, Arc::clone(&places)));
        }
        drop(state);
        let _ = timeout(interval, wakes.notified()).await;
    }
}

/// Divides permits into batches. The permits of a batch depend on the same node and, in a store of several parts, on
/// the same part. So they are not renewed too late because another node or part cannot answer.
fn batches(state: &LimiterState, mut due: Vec<DuePermit>) -> Vec<Vec<DuePermit>> {
    // A permit of several charges is renewed alone.
    let group = |permit: &DuePermit| match &*permit.charges {
        [charge] => (0, charge.renews(), state.store.node(charge).0),
        _ => (permit.id + 1, None, 0),
    };
    due.sort_by_cached_key(group);
    let mut batches: Vec<Vec<DuePermit>> = Vec::new();
    for permit in due {
        match batches.last_mut() {
            Some(batch) if batch.len() < MAX_BATCH && group(&batch[0]) == group(&permit) => {
                batch.push(permit);
            }
            _ => batches.push(vec![permit]),
        }
    }
    batches
}

/// Charges the units of some permits again, and then releases the old ones. If the store cannot answer, the next
/// round tries again.
async fn renew(limiter: Weak<LimiterState>, batch: Vec<DuePermit>, places: Arc<Semaphore>) {
    let Ok(_place) = places.acquire().await else { return };
    let mut batches = vec![batch];
    while let Some(batch) = batches.pop() {
        let Some(state) = limiter.upgrade() else { return };
        // Units of the same key are charged together, and have the same mark.
        let mut charges = Charges::default();
        let mut positions = Vec::new();
        for charge in batch.iter().flat_map(|permit| &permit.charges) {
            positions.push(charges.add(charge.clone()));
        }
        let answer = state.store.call_in_background(Request::Force(&charges));
        drop(state);
        let reply = answer.await;
        // A key that the store refuses is refused without the others.
        if reply.as_ref().is_err_and(|error| !error.is_unavailable()) && batch.len() > 1 {
            batches.extend(batch.into_iter().map(|permit| vec![permit]));
            continue;
        }
        let Some(state) = limiter.upgrade() else { return };
        let mut positions = positions.into_iter();
        for DuePermit { id, round, charges } in batch {
            let charges = charges.into_iter().zip(positions.by_ref());
            let renewed = reply.as_ref().ok().map(|reply| receipt_of(charges, reply));
            if let Some(receipt) = state.units.end_renewal(id, round, renewed) {
                state.release(receipt);
            }
        }
    }
}

/// Returns the receipt of charges by their positions in a reply.
fn receipt_of(
    charges: impl Iterator<Item = (Charge<'static>, usize)>,
    reply: &StoreReply,
) -> Receipt {
    let lines = charges.filter_map(|(charge, position)| {
        let reply = reply.charges.get(position)?;
        let units = charge.cost().min(reply.units);
        Some(ReceiptLine::new(charge, units, reply.mark))
    });
    Receipt::new(reply.time, reply.source, lines)
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
        let wakes = Arc::clone(&limiter.0.units.wakes_renewals);
        assert_eq!(Arc::strong_count(&wakes), 3, "the table, the thread and this test");
        drop((held, limiter));
        let start = Instant::now();
        while Arc::strong_count(&wakes) > 1 {
            assert!(start.elapsed() < Duration::from_secs(30), "the thread goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
