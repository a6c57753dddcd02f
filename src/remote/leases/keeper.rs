//! The keeper: the task that refunds the units that are not needed to the store.

use std::{sync::Weak, time::Duration};

use tokio::time::{sleep, timeout};

use super::{super::guarded::Origin, stocks::Stocks};
use crate::{
    clock::Timestamp,
    decision::{Receipt, Source},
    error::{Effect, Error, ErrorKind},
    policy::Charges,
    store::Request,
    telemetry,
};

/// The shortest and the longest time between two rounds of the keeper. In between it is half of the
/// shortest refresh time of the stocks.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
const MAX_INTERVAL: Duration = Duration::from_millis(500);

/// The longest time for which the end of the leases waits for renewals in flight, and then for its
/// refunds.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Stocks {
    /// Refunds units in rounds, until there are no more stocks or the limiter ends.
    pub(super) async fn keep(stocks: Weak<Self>) {
        while let Some(strong) = stocks.upgrade() {
            let interval = strong.collect();
            // Units whose refund fails come back by themselves.
            let _ = strong.refund_leftovers().await;
            // A key may have become busy during the refunds, without a start of another keeper.
            if strong.table.keys() == 0 {
                return;
            }
            drop(strong);
            sleep(interval).await;
        }
    }

    /// Refunds all units of all stocks. `has_timer` is false outside of a runtime with timers.
    ///
    /// # Errors
    ///
    /// Returns the error of the last refund that failed, or an error if the store does not answer the
    /// refunds in time.
    pub(super) async fn refund_all(&self, has_timer: bool) -> Result<(), Error> {
        self.collect_all();
        let refunds = self.refund_leftovers();
        if has_timer {
            timeout(CLOSE_TIMEOUT, refunds).await.unwrap_or_else(|_| Err(not_refunded()))
        } else {
            refunds.await
        }
    }

    /// Collects the units that are not needed, and drops the stocks of keys without demand. Returns
    /// the time until the next round.
    fn collect(&self) -> Duration {
        let now = self.now();
        let mut interval = MAX_INTERVAL;
        self.table.retain(|entry| {
            let leftovers = if entry.charge.quota_in_force() == *entry.stock.quota() {
                entry.stock.take_leftovers(now)
            } else {
                entry.stock.take_all(self.table.next_generation(), now)
            };
            self.add_leftovers(entry.lines(leftovers));
            interval = interval.min(entry.stock.refresh() / 2);
            !entry.stock.is_cold(now)
        });
        interval.max(MIN_INTERVAL)
    }

    /// Takes all units out of all stocks.
    fn collect_all(&self) {
        let now = self.now();
        self.table.retain(|entry| {
            let leftovers = entry.stock.take_all(self.table.next_generation(), now);
            self.add_leftovers(entry.lines(leftovers));
            false
        });
    }

    async fn refund_leftovers(&self) -> Result<(), Error> {
        // The close waits for the refunds that the keeper has begun.
        let _turn = self.refunds.lock().await;
        let mut result = Ok(());
        for receipt in self.take_receipts() {
            let request = Request::Refund(&receipt);
            match self.guarded.call(request, Origin::Task, self.guarded.deadline).await {
                Ok(reply) => {
                    telemetry::leases_refunded(reply.charges.iter().map(|it| it.units).sum());
                }
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Takes the units to refund to the store, as receipts with as many lines as a check may have.
    fn take_receipts(&self) -> Vec<Receipt> {
        let mut lines = self.take_leftovers().into_iter().peekable();
        let mut receipts = Vec::new();
        while lines.peek().is_some() {
            let lines = lines.by_ref().take(Charges::MAX);
            receipts.push(Receipt::new(Timestamp::default(), Source::Shared, lines));
        }
        receipts
    }
}

fn not_refunded() -> Error {
    let message = format!("the store did not refund all leased units within {CLOSE_TIMEOUT:?}");
    Error::new(ErrorKind::Unavailable, message).with_effect(Effect::Unknown)
}
