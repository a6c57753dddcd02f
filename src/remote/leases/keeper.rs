//! The keeper: the task that refunds units to the store.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::{
    super::stages::{Origin, Stages},
    leases::{Leases, lock},
};
use crate::{
    clock::Timestamp,
    decision::{Receipt, Source},
    error::{Effect, Error, ErrorKind},
    policy::Charges,
    runtime::runtime_with_timer,
    store::Request,
    telemetry,
};

/// The shortest and the longest time between two rounds of the keeper. In between it is half of the
/// shortest refresh time of the stocks.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
const MAX_INTERVAL: Duration = Duration::from_millis(500);

/// The longest time for which [`close`] waits for renewals in flight, and then for its refunds.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Leases {
    /// Starts the keeper, unless it is running. It ends when there are no more stocks.
    #[inline]
    pub(super) fn start_keeper(&self, stages: &Arc<Stages>) {
        // The task holds no strong handle while it sleeps, so that the limiter can end.
        let weak = Arc::downgrade(stages);
        self.keeper.start(|| run(weak));
    }

    /// Collects the units that are not needed, and drops the stocks of keys without demand. Returns
    /// the time until the next round.
    fn collect(&self) -> Duration {
        let Some(table) = self.table() else { return MAX_INTERVAL };
        let now = self.now();
        let mut interval = MAX_INTERVAL;
        table.retain(|entry| {
            let is_current = entry.charge.quota_in_force() == *entry.stock.quota();
            let leftovers = match is_current {
                true => entry.stock.take_leftovers(now),
                false => entry.stock.take_all(table.next_generation(), now),
            };
            self.add_leftovers(entry.lines(leftovers));
            interval = interval.min(entry.stock.refresh() / 2);
            !entry.stock.is_cold(now)
        });
        interval.max(MIN_INTERVAL)
    }

    /// Takes all units out of all stocks.
    fn collect_all(&self) {
        let Some(table) = self.table() else { return };
        let now = self.now();
        table.retain(|entry| {
            let leftovers = entry.stock.take_all(table.next_generation(), now);
            self.add_leftovers(entry.lines(leftovers));
            false
        });
    }

    /// Takes the units to refund to the store, as receipts with as many lines as a check may have.
    fn take_receipts(&self) -> Vec<Receipt> {
        let mut lines = std::mem::take(&mut *lock(&self.leftovers)).into_iter().peekable();
        let mut receipts = Vec::new();
        while lines.peek().is_some() {
            let lines = lines.by_ref().take(Charges::MAX);
            receipts.push(Receipt::new(Timestamp::default(), Source::Shared, lines));
        }
        receipts
    }
}

async fn run(stages: Weak<Stages>) {
    loop {
        let Some(strong) = stages.upgrade() else { return };
        let Some(leases) = &strong.leases else { return };
        let interval = leases.collect();
        // Units whose refund fails come back by themselves.
        let _ = refund_leftovers(&strong, leases).await;
        // A key may have become busy during the refunds, without a start of another keeper.
        if leases.table().is_none_or(|table| table.keys() == 0) {
            return;
        }
        drop(strong);
        sleep(interval).await;
    }
}

/// Ends the leases of a limiter: waits for the renewals in flight, and returns all units.
///
/// # Errors
///
/// Returns the error of the last refund that failed, or an error if the store does not answer the
/// refunds in time.
pub(in crate::remote) async fn close(stages: &Arc<Stages>) -> Result<(), Error> {
    let Some(leases) = &stages.leases else { return Ok(()) };
    let mut renewals = leases.close();
    let ended = async { while renewals.join_next().await.is_some() {} };
    // Outside of a runtime with timers there are no renewals.
    let has_timer = runtime_with_timer().is_some();
    if has_timer {
        let _ = timeout(CLOSE_TIMEOUT, ended).await;
    }
    leases.collect_all();
    let refunds = refund_leftovers(stages, leases);
    match has_timer {
        true => timeout(CLOSE_TIMEOUT, refunds).await.unwrap_or_else(|_| Err(not_returned())),
        false => refunds.await,
    }
}

async fn refund_leftovers(stages: &Arc<Stages>, leases: &Leases) -> Result<(), Error> {
    // The close waits for the refunds that the keeper has begun.
    let _turn = leases.refunds.lock().await;
    let mut result = Ok(());
    for receipt in leases.take_receipts() {
        let request = Request::Refund(&receipt);
        match stages.call(request, Origin::Lease, stages.deadline).await {
            Ok(reply) => {
                telemetry::leases_refunded(reply.charges.iter().map(|it| it.units).sum());
            }
            Err(error) => result = Err(error),
        }
    }
    result
}

#[cold]
fn not_returned() -> Error {
    let message = format!("the store did not refund all leased units within {CLOSE_TIMEOUT:?}");
    Error::new(ErrorKind::Unavailable, message).with_effect(Effect::Unknown)
}
