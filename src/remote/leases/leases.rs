//! The leases of a limiter: the stocks of its busy keys, and the tasks that renew and refund them.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use tokio::{sync::watch, task::JoinSet};

use super::{
    super::{background_task::BackgroundTask, fingerprint::Fingerprint, stages::Stages},
    grant::Taken,
    renewal::{Renewal, RenewalState},
    stock::{RenewalRequest, Shortage},
    table::{Entry, Table},
};
use crate::{
    clock::{Clock, Timestamp, micros},
    decision::{ChargeReply, ReceiptLine, Verdict},
    policy::Charge,
    quota::UnitsReturn,
    runtime::runtime_with_timer,
};

/// The leases of a limiter.
#[derive(Debug)]
pub(in crate::remote) struct Leases {
    /// Created by the first charge under a leased quota.
    table: OnceLock<Table>,
    clock: Arc<dyn Clock>,
    /// The time after a reset or a block in which no renewal is sent, in microseconds.
    pub(super) pause: u64,
    /// True from the beginning of [`close`](Self::close) on. No renewal is started then.
    is_closed: AtomicBool,
    /// The renewals in flight.
    renewals: Mutex<JoinSet<()>>,
    /// Units to refund to the store.
    pub(super) leftovers: Mutex<Vec<ReceiptLine>>,
    /// Locked while units are refunded.
    pub(super) refunds: tokio::sync::Mutex<()>,
    pub(super) keeper: BackgroundTask,
}

/// A charge that is paid from stock.
#[derive(Debug)]
pub(super) struct Payment {
    pub(super) fingerprint: Fingerprint,
    pub(super) taken: Taken,
    pub(super) time: Timestamp,
    pub(super) reply: ChargeReply,
}

/// The result of an attempt to pay a charge from stock.
pub(super) enum Attempt {
    Paid(Payment),
    /// The key is busy, and its stock is too small.
    Short(Fingerprint),
    /// The charge cannot be leased, or its key is not busy.
    Cold,
}

/// The response time of a store that has not answered yet, in microseconds.
const DEFAULT_ROUND_TRIP_MICROS: u64 = 1_000;

/// The maximum number of receipt lines on their way to the store. Units beyond it come back by
/// themselves when they leave the window.
const MAX_LEFTOVERS: usize = 1 << 14;

impl Leases {
    pub(in crate::remote) fn new(clock: Arc<dyn Clock>, pause: u64) -> Self {
        Self {
            table: OnceLock::new(),
            clock,
            pause,
            is_closed: AtomicBool::new(false),
            renewals: Mutex::default(),
            leftovers: Mutex::default(),
            refunds: tokio::sync::Mutex::default(),
            keeper: BackgroundTask::default(),
        }
    }

    /// Returns the table, if a charge under a leased quota has been made.
    #[inline]
    pub(super) fn table(&self) -> Option<&Table> {
        self.table.get()
    }

    /// Returns the table.
    #[inline]
    pub(super) fn table_or_new(&self) -> &Table {
        self.table.get_or_init(Table::new)
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }

    /// Pays a charge from stock, and starts a renewal if little is left. `is_new` is false for a
    /// charge that has waited for a renewal, which counts once as demand.
    #[inline]
    pub(super) fn pay(&self, stages: &Arc<Stages>, charge: &Charge<'_>, is_new: bool) -> Attempt {
        if !is_leased(charge) {
            return Attempt::Cold;
        }
        let table = self.table_or_new();
        let fingerprint = table.fingerprint(charge);
        let mut entries = table.lock(fingerprint);
        let Some(entry) = entries.find(fingerprint) else {
            drop(entries);
            return self.observe(stages, table, charge, fingerprint);
        };
        if entry.stock.quota() != charge.quota() && !self.change_quota(stages, table, entry, charge)
        {
            return Attempt::Cold;
        }
        let cost = charge.cost();
        let (taken, now) = self.take(entry, cost);
        if is_new {
            entry.stock.observe(now, cost);
        }
        let Some(taken) = taken else { return Attempt::Short(fingerprint) };
        let (time, standing) = entry.stock.standing(now);
        let reply =
            ChargeReply { verdict: Verdict::Passed, units: cost, standing, mark: taken.mark };
        let request = entry.stock.next_renewal(now, round_trip(stages), 0);
        let renewal = request.map(|request| self.begin_renewal(stages, entry, request));
        drop(entries);
        if let Some(renewal) = renewal {
            self.start(stages, renewal);
        }
        Attempt::Paid(Payment { fingerprint, taken, time, reply })
    }

    /// Takes units that may be used now. Also returns the time of use.
    #[inline]
    fn take(&self, entry: &mut Entry, cost: u64) -> (Option<Taken>, u64) {
        loop {
            let taken = entry.stock.take(cost);
            // The clock is read after the units were taken: this is the time at which they are used.
            let now = self.now();
            match taken {
                Some(late) if !late.is_usable(now) => drop(entry.stock.discard(&late)),
                taken => return (taken, now),
            };
        }
    }

    /// Returns the renewal for which a check waits whose stock is too small, which it starts if there is
    /// none. Returns `None` if the check asks the store itself.
    pub(super) fn join(
        &self,
        stages: &Arc<Stages>,
        fingerprint: Fingerprint,
        charge: &Charge<'_>,
    ) -> Option<RenewalState> {
        let table = self.table()?;
        let now = self.now();
        let mut entries = table.lock(fingerprint);
        let entry = entries.find(fingerprint)?;
        if entry.stock.quota() != charge.quota() {
            return None;
        }
        let patience = stages.deadline.map_or(u64::MAX, micros);
        match entry.stock.shortage(now, round_trip(stages), patience, charge.cost()) {
            Shortage::Asks => None,
            Shortage::Waits => entry.renewal.clone(),
            Shortage::Renews(request) => {
                let renewal = self.begin_renewal(stages, entry, request);
                let state = entry.renewal.clone();
                drop(entries);
                self.start(stages, renewal);
                state
            }
        }
    }

    /// Adds units that the keeper refunds to the store in its next round.
    pub(super) fn add_leftovers(&self, lines: impl Iterator<Item = ReceiptLine>) {
        let mut leftovers = lock(&self.leftovers);
        let room = MAX_LEFTOVERS.saturating_sub(leftovers.len());
        leftovers.extend(lines.take(room));
    }

    /// Returns whether no more renewals are started.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    /// Stops all tasks.
    pub(in crate::remote) fn stop(&self) {
        self.keeper.stop();
        drop(self.close());
    }

    /// Starts no more renewals, and returns those in flight.
    pub(super) fn close(&self) -> JoinSet<()> {
        let mut renewals = lock(&self.renewals);
        self.is_closed.store(true, Release);
        std::mem::take(&mut *renewals)
    }

    /// Counts a check of a key without a stock.
    #[inline(never)]
    fn observe(
        &self,
        stages: &Arc<Stages>,
        table: &Table,
        charge: &Charge<'_>,
        fingerprint: Fingerprint,
    ) -> Attempt {
        let (now, has_debt_marks) = (self.now(), has_debt_marks(stages, charge));
        if self.is_closed() || !table.observe(fingerprint, charge, now, has_debt_marks) {
            return Attempt::Cold;
        }
        self.start_keeper(stages);
        Attempt::Short(fingerprint)
    }

    /// Replaces the quota of a stock by that of a charge, unless the charge was made under an earlier
    /// quota than the stock. Returns whether it was replaced.
    #[cold]
    fn change_quota(
        &self,
        stages: &Stages,
        table: &Table,
        entry: &mut Entry,
        charge: &Charge<'_>,
    ) -> bool {
        if charge.quota_in_force() != *charge.quota() {
            return false;
        }
        let generation = table.next_generation();
        let leftovers = entry.stock.change_quota(*charge.quota(), generation, self.now());
        entry.stock.set_debt_marks(has_debt_marks(stages, charge));
        self.add_leftovers(entry.lines(leftovers));
        entry.charge = charge.clone().into_owned();
        entry.renewal = None;
        true
    }

    /// Creates the renewal for a request. Other tasks can wait for its end.
    fn begin_renewal(
        &self,
        stages: &Arc<Stages>,
        entry: &mut Entry,
        request: RenewalRequest,
    ) -> Renewal {
        let (state, receiver) = watch::channel(false);
        entry.renewal = Some(receiver);
        Renewal::new(stages, entry, request, state)
    }

    /// Starts the task of a renewal. Without a runtime, or after the close, the renewal is dropped,
    /// which ends it.
    #[inline(never)]
    fn start(&self, stages: &Arc<Stages>, renewal: Renewal) {
        let Some(runtime) = runtime_with_timer() else { return };
        let mut renewals = lock(&self.renewals);
        if !self.is_closed() {
            self.start_keeper(stages);
            while renewals.try_join_next().is_some() {}
            renewals.spawn_on(renewal.run(Arc::clone(stages)), &runtime);
        }
    }
}

/// Returns whether the units of a charge may be leased. Shadows, charges of a number of units that the
/// store chooses, and charges that can never pass are always sent to it.
#[inline]
pub(super) fn is_leased(charge: &Charge<'_>) -> bool {
    charge.quota().lease().is_some()
        && charge.cost() > 0
        && charge.max_cost() == charge.cost()
        && charge.cost() <= charge.quota().capacity()
        && !charge.is_shadow()
}

/// Returns whether the store marks a charge with the debt of a token bucket.
pub(super) fn has_debt_marks(stages: &Stages, charge: &Charge<'_>) -> bool {
    stages.has_debt_marks
        && matches!(charge.quota().algorithm().units_return(), UnitsReturn::AtRate { .. })
}

/// Returns the time from a request to its reply, in microseconds.
#[inline]
fn round_trip(stages: &Stages) -> u64 {
    stages.store_times.micros().unwrap_or(DEFAULT_ROUND_TRIP_MICROS)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
