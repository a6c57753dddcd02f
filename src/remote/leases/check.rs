//! A check whose charges are all under leased quotas, in three steps:
//!
//! 1. [Pay](Leases::pay_all): the stocks pay all of its charges, or none.
//! 2. [Wait](Leases::pay_later): if a renewal is in flight for each stock that is too small, the check waits for the
//!    end of these renewals, and pays again.
//! 3. [Ask](Leases::ask): the store is asked for all charges in one call.

use std::{pin::pin, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    super::{
        config::Resilience,
        guarded::{Answered, CheckProgress, Guards, Progress, WaitingCheck},
    },
    leases::Leases,
    stocks::{Attempted, Payment},
    table::RenewalEnd,
};
use crate::{
    clock::micros,
    decision::Checked,
    policy::Charge,
    runtime::{TimeLimit, runtime_with_timer},
    store::Request,
    telemetry,
};

/// The reason why the stocks cannot pay a check.
enum Unpaid {
    /// Stocks are too small.
    Short {
        /// The ends of their renewals.
        ends: RenewalEnds,
        /// The time of the attempt.
        now: u64,
    },
    /// A key is not busy.
    Cold,
}

/// The ends of the renewals for which a check waits. Empty if it does not wait.
type RenewalEnds = SmallVec<[RenewalEnd; 1]>;

/// The number of times that a check waits for renewals. The first renewal of a key that has just become busy is
/// too small for all checks that wait for it, but it shows the demand.
const MAX_WAITS: usize = 2;

impl Leases {
    /// Begins a check whose charges [may all be leased](Charge::may_be_leased), and waits no longer than `limit` for
    /// the store.
    pub(in crate::remote) fn acquire<'p>(
        self: &Arc<Self>,
        mut check: Box<Checked<'p>>,
        limit: Option<Duration>,
    ) -> CheckProgress<'p> {
        let (ends, now) = match self.pay_all(&mut check, true) {
            Ok(()) => return Progress::Decided(Ok(check)),
            Err(Unpaid::Cold) => return self.stocks.guarded.acquire(check, limit),
            Err(Unpaid::Short { ends, now }) => (ends, now),
        };
        if ends.is_empty() || !self.may_wait(&check.charges, limit) {
            return self.ask(check, now, limit);
        }
        // The deny cache decides without a wait.
        if let Some(cache) = &self.stocks.guarded.deny_cache
            && let Err(denial) = cache.begin(Request::Acquire(&check.charges))
        {
            return Progress::Decided(Ok(check.replied(denial)));
        }
        let check = check.into_owned();
        Progress::Waits(WaitingCheck::boxed(Arc::clone(self).pay_later(check, ends, limit)))
    }

    /// Pays all charges from stock. `is_new` is false for a check that has waited, which counts once as demand.
    ///
    /// A check with a key that is not busy is no demand for its other keys, because their stocks cannot pay it.
    ///
    /// # Errors
    ///
    /// Returns the reason if the stocks cannot pay all charges. The stocks then have their units again.
    fn pay_all(&self, check: &mut Checked<'_>, is_new: bool) -> Result<(), Unpaid> {
        let Checked { charges, reply } = check;
        let is_alone = charges.len() == 1;
        let mut payment = Payment::new(reply);
        for charge in &**charges {
            self.pay(charge, is_new && is_alone, &mut payment);
        }
        let is_cold = payment.attempts.iter().any(|it| matches!(it.result, Attempted::Cold));
        if is_new && !is_alone && !is_cold {
            self.stocks.observe(charges, &payment);
        }
        if payment.reply.charges.len() == charges.len() {
            telemetry::paid_from_stock();
            return Ok(());
        }
        self.stocks.undo(&payment);
        if payment.attempts.iter().any(|it| matches!(it.result, Attempted::Short(_))) {
            self.start_keeper();
        }
        if is_cold {
            return Err(Unpaid::Cold);
        }
        let ends = payment.attempts.into_iter().filter_map(|attempt| match attempt.result {
            Attempted::Short(end) => Some(end),
            _ => None,
        });
        let ends = ends.collect::<Option<_>>().unwrap_or_default();
        Err(Unpaid::Short { ends, now: payment.now })
    }

    /// Returns whether a check may wait for renewals: the breaker is closed, and the other half of the limit is enough
    /// for two round trips.
    fn may_wait(&self, charges: &[Charge<'_>], limit: Option<Duration>) -> bool {
        let Guards { breakers, store, .. } = &*self.stocks.guarded;
        self.round_trip() < micros(half(limit)) / 2
            && runtime_with_timer().is_some()
            && !breakers.as_ref().is_some_and(|it| it.rejects(&**store, Request::Acquire(charges)))
    }

    /// Waits for renewals, for half of the limit in total. Then the stocks pay, or the store is asked.
    async fn pay_later(
        self: Arc<Self>,
        mut check: Box<Checked<'static>>,
        mut ends: RenewalEnds,
        limit: Option<Duration>,
    ) -> Answered<'static> {
        let start = Instant::now();
        let half = half(limit);
        let wait = TimeLimit::after(half);
        for _ in 0..MAX_WAITS {
            let ended = async {
                for end in &mut ends {
                    // An error means that the renewal has ended.
                    let _ = end.changed().await;
                }
            };
            let delay = &self.stocks.guarded.scheduling_delay;
            let have_ended = wait.wait_measured(pin!(ended), delay).await.is_ok();
            ends = match self.pay_all(&mut check, false) {
                Ok(()) => return Ok(check),
                Err(Unpaid::Short { ends, .. }) if have_ended && !ends.is_empty() => ends,
                Err(_) => break,
            };
        }
        // A process that was late has half of the time left.
        let rest = limit.map(|limit| limit.saturating_sub(start.elapsed()).max(half));
        match self.ask(check, self.stocks.now(), rest) {
            Progress::Decided(check) => check,
            Progress::Waits(call) => call.await,
        }
    }

    /// Asks the store for charges that the stocks cannot pay. `asked_at` is no later than now.
    fn ask<'p>(
        &self,
        check: Box<Checked<'p>>,
        asked_at: u64,
        limit: Option<Duration>,
    ) -> CheckProgress<'p> {
        match self.stocks.guarded.acquire(check, limit) {
            Progress::Decided(check) => {
                Progress::Decided(check.map(|check| self.stocks.record(check, asked_at)))
            }
            Progress::Waits(call) => {
                let stocks = Arc::clone(&self.stocks);
                let call = call.into_owned();
                Progress::Waits(WaitingCheck::boxed(async move {
                    Ok(stocks.record(call.await?, asked_at))
                }))
            }
        }
    }
}

/// Returns half of the longest wait of a check.
fn half(limit: Option<Duration>) -> Duration {
    limit.unwrap_or(Resilience::DEADLINE) / 2
}
