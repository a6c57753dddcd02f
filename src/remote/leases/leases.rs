//! The leases of a limiter: the stocks of its busy keys above the guarded store, and the tasks that renew
//! and refund them.

use std::{mem, sync::Arc};

use tokio::{task::JoinSet, time::timeout};

use super::{
    super::guarded::Guarded,
    keeper::CLOSE_TIMEOUT,
    renewal::Renewal,
    stocks::{Payment, Stocks},
    table::NewRenewal,
};
use crate::{
    clock::Clock,
    error::Error,
    policy::Charge,
    runtime::{BackgroundTask, runtime_with_timer},
    sync::Mutex,
};

/// The leases of a limiter. Checks come in through [`acquire`](Self::acquire), other requests through
/// [`call`](Self::call).
#[derive(Debug)]
pub(in crate::remote) struct Leases {
    pub(super) stocks: Arc<Stocks>,
    /// The renewals in flight.
    renewals: Mutex<JoinSet<()>>,
    keeper: BackgroundTask,
}

/// The response time of a store that has not answered yet, in microseconds.
const DEFAULT_ROUND_TRIP_MICROS: u64 = 1_000;

impl Leases {
    /// Creates the leases over a store. `pause` is the time after a reset or a block in which no renewal
    /// is sent, in microseconds.
    pub(in crate::remote) fn new(guarded: &Guarded, clock: Arc<dyn Clock>, pause: u64) -> Self {
        Self {
            stocks: Arc::new(Stocks::new(guarded.clone(), clock, pause)),
            renewals: Mutex::default(),
            keeper: BackgroundTask::default(),
        }
    }

    /// Pays a charge from stock, and starts a renewal if little is left. See [`Stocks::pay`].
    pub(super) fn pay(&self, charge: &Charge<'_>, is_demand: bool, payment: &mut Payment<'_>) {
        if let Some(renewal) = self.stocks.pay(charge, self.round_trip(), is_demand, payment) {
            self.start(*renewal);
        }
    }

    /// Returns the time from a request to its reply, in microseconds.
    pub(super) fn round_trip(&self) -> u64 {
        self.stocks.guarded.store_times.micros().unwrap_or(DEFAULT_ROUND_TRIP_MICROS)
    }

    /// Empties the stocks of these charges, as [`Stocks::withdraw`] says.
    pub(super) fn withdraw(&self, charges: &[Charge<'_>], are_counted: bool) {
        self.stocks.withdraw(charges, are_counted);
        self.start_keeper();
    }

    /// Returns the number of keys with a stock, and the number of units in all stocks.
    pub(in crate::remote) fn held(&self) -> (usize, u64) {
        self.stocks.table.held(self.stocks.now())
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
        self.stocks.refund_all(has_timer).await
    }

    /// Stops all tasks.
    pub(in crate::remote) fn stop(&self) {
        self.keeper.stop();
        drop(self.start_no_more());
    }

    /// Starts no more renewals, and returns those in flight.
    fn start_no_more(&self) -> JoinSet<()> {
        let mut renewals = self.renewals.lock();
        self.stocks.close();
        mem::take(&mut *renewals)
    }

    /// Starts the task of a renewal. Without a runtime, or after the close, the renewal is dropped,
    /// which ends it.
    fn start(&self, renewal: NewRenewal) {
        let renewal = Renewal::new(&self.stocks, renewal);
        let Some(runtime) = runtime_with_timer() else { return };
        let mut renewals = self.renewals.lock();
        if !self.stocks.is_closed() {
            self.start_keeper();
            while renewals.try_join_next().is_some() {}
            renewals.spawn_on(renewal.run(), &runtime);
        }
    }

    /// Starts the keeper, unless it is running. It ends when there are no more stocks.
    pub(super) fn start_keeper(&self) {
        // The task holds no strong handle while it sleeps, so that the limiter can end.
        self.keeper.start(|| Stocks::keep(Arc::downgrade(&self.stocks)));
    }
}
