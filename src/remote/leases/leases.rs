//! The leases of a limiter: the stocks of its busy keys above the guarded store, and the tasks that renew
//! and refund them.

use std::sync::{Arc, MutexGuard};

use tokio::{task::JoinSet, time::timeout};

use super::{
    super::{fingerprint::Fingerprint, guarded::Guarded},
    keeper::{CLOSE_TIMEOUT, Keeper},
    renewal::Renewal,
    stocks::{Attempt, Stocks},
    table::{NewRenewal, RenewalState},
};
use crate::{
    clock::{Clock, micros},
    error::Error,
    policy::Charge,
    runtime::{BackgroundTask, runtime_with_timer},
    sync::Mutex,
};

/// The leases of a limiter. Requests come in through [`call`](Self::call).
#[derive(Debug)]
pub(in crate::remote) struct Leases {
    /// The store from which units are leased.
    pub(super) guarded: Guarded,
    pub(super) stocks: Arc<Stocks>,
    /// The renewals in flight.
    renewals: Mutex<JoinSet<()>>,
    keeper: Arc<Keeper>,
    keeper_task: BackgroundTask,
}

/// The response time of a store that has not answered yet, in microseconds.
const DEFAULT_ROUND_TRIP_MICROS: u64 = 1_000;

impl Leases {
    /// Creates the leases over a store. `pause` is the time after a reset or a block in which no renewal
    /// is sent, in microseconds.
    pub(in crate::remote) fn new(guarded: &Guarded, clock: Arc<dyn Clock>, pause: u64) -> Self {
        let stocks = Arc::new(Stocks::new(clock, guarded.traits.marks_debts, pause));
        Self {
            keeper: Arc::new(Keeper::new(guarded, &stocks)),
            guarded: guarded.clone(),
            stocks,
            renewals: Mutex::default(),
            keeper_task: BackgroundTask::default(),
        }
    }

    /// Pays a charge from stock, and starts a renewal if little is left. `is_new` is false for a
    /// charge that has waited for a renewal, which counts once as demand.
    #[inline]
    pub(super) fn pay(&self, charge: &Charge<'_>, is_new: bool) -> Attempt {
        let start = |renewal| self.start(renewal);
        let attempt = self.stocks.pay(charge, self.round_trip(), is_new, start);
        if let Attempt::Short(_) = attempt {
            self.start_keeper();
        }
        attempt
    }

    /// Returns the renewal for which a check waits whose stock is too small, which it starts if there is
    /// none. Returns `None` if the check asks the store itself.
    pub(super) fn renewal(
        &self,
        fingerprint: Fingerprint,
        charge: &Charge<'_>,
    ) -> Option<RenewalState> {
        let patience = self.guarded.deadline.map_or(u64::MAX, micros);
        let start = |renewal| self.start(renewal);
        self.stocks.renewal(fingerprint, charge, self.round_trip(), patience, start)
    }

    /// Empties the stocks of these charges, as [`Stocks::withdraw`] says.
    pub(super) fn withdraw(&self, charges: &[Charge<'_>], are_counted: bool) {
        self.stocks.withdraw(charges, are_counted);
        self.start_keeper();
    }

    /// Returns the number of keys with a stock, and the number of units in all stocks.
    pub(in crate::remote) fn held(&self) -> (usize, u64) {
        let stocks = &self.stocks;
        stocks.table().map_or((0, 0), |table| table.held(stocks.now()))
    }

    /// Ends the leases: waits for the renewals in flight, and refunds all units to the store.
    ///
    /// # Errors
    ///
    /// Returns the error of the last refund that failed, or an error if the store does not answer the
    /// refunds in time.
    pub(in crate::remote) async fn close(&self) -> Result<(), Error> {
        let mut renewals = self.start_no_more();
        let ended = async { while renewals.join_next().await.is_some() {} };
        // Outside of a runtime with timers there are no renewals.
        let has_timer = runtime_with_timer().is_some();
        if has_timer {
            let _ = timeout(CLOSE_TIMEOUT, ended).await;
        }
        self.keeper.refund_all(has_timer).await
    }

    /// Stops all tasks.
    pub(in crate::remote) fn stop(&self) {
        self.keeper_task.stop();
        drop(self.start_no_more());
    }

    /// Starts no more renewals, and returns those in flight.
    fn start_no_more(&self) -> JoinSet<()> {
        let mut renewals = self.renewals();
        self.stocks.close();
        std::mem::take(&mut *renewals)
    }

    /// Starts the task of a renewal. Without a runtime, or after the close, the renewal is dropped,
    /// which ends it.
    #[inline(never)]
    fn start(&self, renewal: NewRenewal) {
        let renewal = Renewal::new(&self.stocks, renewal);
        let Some(runtime) = runtime_with_timer() else { return };
        let mut renewals = self.renewals();
        if !self.stocks.is_closed() {
            self.start_keeper();
            while renewals.try_join_next().is_some() {}
            renewals.spawn_on(renewal.run(self.guarded.clone()), &runtime);
        }
    }

    /// Starts the keeper, unless it is running. It ends when there are no more stocks.
    #[inline]
    fn start_keeper(&self) {
        // The task holds no strong handle while it sleeps, so that the limiter can end.
        self.keeper_task.start(|| Keeper::run(Arc::downgrade(&self.keeper)));
    }

    /// Returns the time from a request to its reply, in microseconds.
    #[inline]
    fn round_trip(&self) -> u64 {
        self.guarded.store_times.micros().unwrap_or(DEFAULT_ROUND_TRIP_MICROS)
    }

    fn renewals(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.renewals.lock()
    }
}
