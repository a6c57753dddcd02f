//! The keeper: the thread that renews the units in flight that have reached a quarter of their expiry, and sends the
//! releases of a remote store. It starts with the first units or release of a limiter, and ends with the limiter.
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
    time::{Instant, sleep, timeout},
};

use super::{Limiter, in_flight::DueUnits, limiter::LimiterState};
use crate::{
    decision::{Checked, Decision, Receipt, Source},
    error::{Effect, Error, ErrorKind},
    quota::Quota,
    runtime::{run_on_own_thread, runtime_with_timer},
    store::Request,
};

/// The maximum number of renewals in flight. Each renews the units of one check.
const MAX_RENEWALS: usize = 512;
/// The time between two rounds in which the keeper looks for units to renew.
const ROUND_INTERVAL: Duration = Quota::MIN_EXPIRY.checked_div(16).unwrap();
/// The longest time for which the end of a limiter waits for the releases.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two attempts to release while the store cannot answer.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

impl Limiter {
    /// Starts the keeper, unless it runs.
    pub(super) fn start_keeper(&self) {
        let Some(running) = self.0.keeper.set() else { return };
        let limiter = Arc::downgrade(&self.0);
        let wakes_renewals = Arc::clone(&self.0.units.wakes_renewals);
        let wakes_releases = Arc::clone(&self.0.units.wakes_releases);
        run_on_own_thread(async move {
            let _running = running;
            tokio::spawn(send_releases(limiter.clone(), wakes_releases));
            renew_all(limiter, wakes_renewals).await;
        });
    }

    /// Releases the units of a receipt, all of which are in flight. Units of an embedded store are free at
    /// once.
    pub(super) fn release(&self, receipt: &Receipt) {
        if self.0.store.release_now(receipt) {
            return;
        }
        if receipt.source == Source::Fallback {
            // The fallback answers at once.
            drop(self.0.store.call(Request::Refund(receipt)));
        } else {
            self.0.units.release(receipt);
            self.start_keeper();
        }
    }

    /// Sends all releases that wait, after the one in flight. Returns the first error, or an error after
    /// [`CLOSE_TIMEOUT`]: the store may never answer.
    pub(super) async fn send_all_released(&self) -> Result<(), Error> {
        let all = async {
            while self.0.send_released().await? {}
            Ok(())
        };
        if runtime_with_timer().is_none() {
            return all.await;
        }
        timeout(CLOSE_TIMEOUT, all).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Deadline, "the store has not released all units"))
        })
    }
}

impl LimiterState {
    /// Sends releases that wait, in one request. Returns false if there are none.
    ///
    /// Without an answer, the units may have been released. They are not released again, because by then another
    /// request may have them.
    async fn send_released(&self) -> Result<bool, Error> {
        let _one_at_a_time = self.units.sending.lock().await;
        let batch = self.units.take_released(|charge| self.store.node(charge));
        let Some(batch) = batch else { return Ok(false) };
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

/// Renews units until the limiter ends.
async fn renew_all(limiter: Weak<LimiterState>, wakes: Arc<Notify>) {
    let mut tasks = JoinSet::new();
    let places = Arc::new(Semaphore::new(MAX_RENEWALS));
    while let Some(state) = limiter.upgrade() {
        let Some(round) = state.units.begin_round() else {
            drop(state);
            wakes.notified().await;
            continue;
        };
        while tasks.try_join_next().is_some() {}
        let mut next = Some(0);
        while next.is_some() {
            for due in state.units.take_due(round, &mut next) {
                tasks.spawn(renew(limiter.clone(), due, Arc::clone(&places)));
            }
        }
        drop(state);
        let _ = timeout(ROUND_INTERVAL, wakes.notified()).await;
    }
}

/// Waits for a place, charges units again, and then releases the old ones. If the store cannot answer, a later
/// round tries again.
async fn renew(weak: Weak<LimiterState>, due: DueUnits, places: Arc<Semaphore>) {
    let _place = places.acquire().await;
    let DueUnits { id, charges } = due;
    let Some(state) = weak.upgrade() else { return };
    let asked_at = Instant::now();
    let answer = state.store.call_in_background(Request::Force(&charges));
    drop(state);
    let reply = answer.await;
    let Some(limiter) = weak.upgrade().map(Limiter) else { return };
    let renewed = reply.and_then(|reply| Decision::forced(Checked::with_reply(charges, reply)));
    let receipt = renewed.ok().map(|renewed| Arc::new(renewed.into_receipt()));
    if let Some(released) = limiter.0.units.end_renewal(id, asked_at, receipt) {
        limiter.release(&released);
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
