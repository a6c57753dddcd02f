//! The stocks of a limiter's busy keys. Nothing here waits, or calls the store.

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use smallvec::SmallVec;

use super::{
    super::fingerprint::Fingerprint,
    grants::Taken,
    stock::Shortage,
    table::{Entry, NewRenewal, RenewalState, Table},
};
use crate::{
    clock::{Clock, Timestamp},
    decision::{ChargeReply, ReceiptLine, StoreReply, Verdict},
    policy::Charge,
    sync::Mutex,
};

/// The stocks of a limiter's busy keys, and the units that the store has to refund.
#[derive(Debug)]
pub(super) struct Stocks {
    /// Created by the first charge under a leased quota.
    table: OnceLock<Table>,
    clock: Arc<dyn Clock>,
    /// True if the store [marks](crate::store::Traits::marks_debts) charges to token buckets with their
    /// debt.
    has_debt_marks: bool,
    /// The time after a reset or a block in which no renewal is sent, in microseconds.
    pause: u64,
    /// True if no more stocks are created.
    is_closed: AtomicBool,
    /// Units to refund to the store.
    leftovers: Mutex<Vec<ReceiptLine>>,
}

/// A charge that is paid from stock.
#[derive(Debug)]
pub(super) struct Payment {
    fingerprint: Fingerprint,
    taken: Taken,
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

/// The busy key of a charge that may be paid from stock.
#[derive(Debug, Clone, Copy)]
pub(super) struct BusyKey {
    pub(super) fingerprint: Fingerprint,
    /// True if its stock is too small.
    pub(super) is_short: bool,
}

impl Attempt {
    /// Returns the key, if it is busy.
    pub(super) fn key(&self) -> Option<BusyKey> {
        match self {
            Self::Paid(payment) => {
                Some(BusyKey { fingerprint: payment.fingerprint, is_short: false })
            }
            Self::Short(fingerprint) => Some(BusyKey { fingerprint: *fingerprint, is_short: true }),
            Self::Cold => None,
        }
    }

    pub(super) fn payment(&self) -> Option<&Payment> {
        if let Self::Paid(payment) = self { Some(payment) } else { None }
    }
}

/// The maximum number of receipt lines on their way to the store. Units beyond it come back by
/// themselves when they leave the window.
const MAX_LEFTOVERS: usize = 1 << 14;

impl Stocks {
    pub(super) fn new(clock: Arc<dyn Clock>, has_debt_marks: bool, pause: u64) -> Self {
        Self {
            table: OnceLock::new(),
            clock,
            has_debt_marks,
            pause,
            is_closed: AtomicBool::new(false),
            leftovers: Mutex::default(),
        }
    }

    /// Returns the table, if a charge under a leased quota has been made.
    #[inline]
    pub(super) fn table(&self) -> Option<&Table> {
        self.table.get()
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }

    /// Pays a charge from stock, and passes a renewal to `start` if little is left. `round_trip` is the
    /// time from a request to its reply. `is_new` is false for a charge that has waited for a renewal,
    /// which counts once as demand.
    #[inline]
    pub(super) fn pay(
        &self,
        charge: &Charge<'_>,
        round_trip: u64,
        is_new: bool,
        start: impl FnOnce(NewRenewal),
    ) -> Attempt {
        if !is_leased(charge) {
            return Attempt::Cold;
        }
        let table = self.table_or_new();
        let fingerprint = table.fingerprint(charge);
        let mut entries = table.lock(fingerprint);
        let Some(entry) = entries.find(fingerprint) else {
            drop(entries);
            return self.observe(table, charge, fingerprint);
        };
        if entry.stock.quota() != charge.quota() && !self.change_quota(table, entry, charge) {
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
        let request = entry.stock.next_renewal(now, round_trip, 0);
        let renewal = request.map(|request| entry.begin_renewal(request));
        drop(entries);
        if let Some(renewal) = renewal {
            start(renewal);
        }
        Attempt::Paid(Payment { fingerprint, taken, time, reply })
    }

    /// Returns the renewal for which a check waits whose stock is too small. If there is none, one is
    /// passed to `start`. Returns `None` if the check asks the store itself. `patience` is the time for
    /// which a check waits for the store.
    pub(super) fn renewal(
        &self,
        fingerprint: Fingerprint,
        charge: &Charge<'_>,
        round_trip: u64,
        patience: u64,
        start: impl FnOnce(NewRenewal),
    ) -> Option<RenewalState> {
        let table = self.table()?;
        let now = self.now();
        let mut entries = table.lock(fingerprint);
        let entry = entries.find(fingerprint)?;
        if entry.stock.quota() != charge.quota() {
            return None;
        }
        match entry.stock.shortage(now, round_trip, patience, charge.cost()) {
            Shortage::Asks => None,
            Shortage::Waits => entry.renewal.clone(),
            Shortage::Renews(request) => {
                let renewal = entry.begin_renewal(request);
                let state = entry.renewal.clone();
                drop(entries);
                start(renewal);
                state
            }
        }
    }

    /// Puts the units of a denied check into the stock that they were taken from. If their grant has left
    /// the stock meanwhile, they come back by themselves.
    pub(super) fn undo(&self, payment: &Payment) {
        self.with_stock(payment.fingerprint, |entry| entry.stock.undo(&payment.taken));
    }

    /// Records the store's reply to a charge that was not paid from stock, and adds the stock to it if
    /// the charge has passed.
    pub(super) fn record(
        &self,
        fingerprint: Fingerprint,
        asked_at: u64,
        time: Timestamp,
        reply: &mut ChargeReply,
    ) {
        self.with_stock(fingerprint, |entry| {
            entry.stock.record(asked_at, time, reply.standing);
            if reply.verdict == Verdict::Passed {
                reply.standing = entry.stock.standing(asked_at).1;
            }
        });
    }

    /// Refunds the units of a receipt's line to the stock that they were taken from. Returns `None` if
    /// the store has to refund them.
    pub(super) fn refund(&self, line: &ReceiptLine) -> Option<ChargeReply> {
        let (charge, units, mark) = (&line.charge, line.units, line.mark);
        let refund = |entry: &mut Entry| {
            let is_open = entry.stock.quota() == charge.quota()
                && units > 0
                && entry.stock.refund(mark, units);
            let (_, standing) = entry.stock.standing(self.now());
            is_open.then_some(ChargeReply { verdict: Verdict::Passed, units, standing, mark })
        };
        self.with_stock_of(charge, refund).flatten()
    }

    /// Returns the units in the stock of each charge.
    pub(super) fn units(&self, charges: &[Charge<'_>]) -> SmallVec<[u64; 2]> {
        let now = self.now();
        let units = |charge| self.with_stock_of(charge, |entry| entry.stock.units_at(now));
        charges.iter().map(|charge| units(charge).unwrap_or(0)).collect()
    }

    /// Adds the stocks of these charges to the reply to a peek. `before` are the
    /// [units](Self::units) in the stocks before the peek was sent: those of a renewal that was granted
    /// meanwhile may be in the reply as well.
    pub(super) fn add_stock(&self, charges: &[Charge<'_>], before: &[u64], reply: &mut StoreReply) {
        let now = self.now();
        for ((charge, before), reply) in charges.iter().zip(before).zip(&mut reply.charges) {
            self.with_stock_of(charge, |entry| {
                let ChargeReply { verdict, standing, .. } = reply;
                let units = entry.stock.units_at(now).min(*before);
                standing.remaining = standing.remaining.saturating_add(units).min(standing.limit);
                let is_refused = *verdict == Verdict::Refused && is_leased(charge);
                if is_refused && entry.stock.holds(charge.cost(), now) {
                    (*verdict, standing.retry_after) = (Verdict::Passed, None);
                }
            });
        }
    }

    /// Refunds units in stock for the charges after which no unit is free, by the reply to forced charges.
    pub(super) fn pay_forced(&self, charges: &[Charge<'_>], reply: &StoreReply) {
        let lines = charges.iter().zip(&reply.charges);
        let spent = lines.filter(|(_, reply)| reply.standing.remaining == 0);
        spent.for_each(|(charge, _)| self.pay_forced_charge(charge, 0));
    }

    /// Refunds units in stock for forced charges that may have left no unit free, or may do so until the
    /// end of a pause.
    pub(super) fn pay_unanswered(&self, charges: &[Charge<'_>]) {
        charges.iter().for_each(|charge| self.pay_forced_charge(charge, self.pause));
    }

    /// Empties the stocks of these charges before a reset or a block is sent, and pauses their
    /// renewals until it has arrived. Renewals in flight are not used. The units are refunded if the
    /// store still counts them.
    ///
    /// A key without a stock gets an empty one, which is paused as well.
    pub(super) fn withdraw(&self, charges: &[Charge<'_>], are_counted: bool) {
        let now = self.now();
        let resume_at = now.saturating_add(self.pause);
        for charge in charges.iter().filter(|charge| charge.quota().lease().is_some()) {
            let table = self.table_or_new();
            let fingerprint = table.fingerprint(charge);
            let mut entries = table.lock(fingerprint);
            if entries.find(fingerprint).is_none() && !self.is_closed() {
                let has_debt_marks = self.has_debt_marks(charge);
                table.insert(&mut entries, fingerprint, charge, now, has_debt_marks);
            }
            let Some(entry) = entries.find(fingerprint) else { continue };
            let generation = table.next_generation();
            entry.renewal = None;
            if are_counted {
                let leftovers = entry.stock.take_all(generation, resume_at);
                self.add_leftovers(entry.lines(leftovers));
            } else {
                entry.stock.forget(generation, resume_at);
            }
        }
    }

    /// Adds units to refund to the store.
    pub(super) fn add_leftovers(&self, lines: impl Iterator<Item = ReceiptLine>) {
        let mut leftovers = self.leftovers.lock();
        let room = MAX_LEFTOVERS.saturating_sub(leftovers.len());
        leftovers.extend(lines.take(room));
    }

    /// Takes the units to refund to the store.
    pub(super) fn take_leftovers(&self) -> Vec<ReceiptLine> {
        std::mem::take(&mut *self.leftovers.lock())
    }

    /// Returns whether no more stocks are created.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    /// Creates no more stocks.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Release);
    }

    /// Calls `act` with the stock of a key, and returns its result. Returns `None` if there is no stock.
    pub(super) fn with_stock<T>(
        &self,
        fingerprint: Fingerprint,
        act: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        self.table()?.lock(fingerprint).find(fingerprint).map(act)
    }

    /// Calls `act` like [`with_stock`](Self::with_stock), for the key of a charge.
    fn with_stock_of<T>(
        &self,
        charge: &Charge<'_>,
        act: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        self.with_stock(self.table()?.fingerprint(charge), act)
    }

    /// Returns the table.
    #[inline]
    fn table_or_new(&self) -> &Table {
        self.table.get_or_init(Table::new)
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

    /// Counts a check of a key without a stock.
    #[inline(never)]
    fn observe(&self, table: &Table, charge: &Charge<'_>, fingerprint: Fingerprint) -> Attempt {
        let (now, has_debt_marks) = (self.now(), self.has_debt_marks(charge));
        match !self.is_closed() && table.observe(fingerprint, charge, now, has_debt_marks) {
            true => Attempt::Short(fingerprint),
            false => Attempt::Cold,
        }
    }

    /// Replaces the quota of a stock by that of a charge, unless the charge was made under an earlier
    /// quota than the stock. Returns whether it was replaced.
    #[cold]
    fn change_quota(&self, table: &Table, entry: &mut Entry, charge: &Charge<'_>) -> bool {
        if charge.quota_in_force() != *charge.quota() {
            return false;
        }
        let generation = table.next_generation();
        let leftovers = entry.stock.change_quota(*charge.quota(), generation, self.now());
        entry.stock.set_debt_marks(self.has_debt_marks(charge));
        self.add_leftovers(entry.lines(leftovers));
        entry.charge = charge.clone().into_owned();
        entry.renewal = None;
        true
    }

    fn pay_forced_charge(&self, charge: &Charge<'_>, pause: u64) {
        // The store does not spend the units of a shadow beyond the limit.
        if charge.is_shadow() {
            return;
        }
        let now = self.now();
        self.with_stock_of(charge, |entry| {
            let resume_at = now.saturating_add(pause);
            let leftovers = entry.stock.pay_forced(charge.cost(), now, resume_at);
            self.add_leftovers(entry.lines(leftovers));
        });
    }

    /// Returns whether the store marks a charge with the debt of a token bucket.
    fn has_debt_marks(&self, charge: &Charge<'_>) -> bool {
        self.has_debt_marks && charge.quota().algorithm().has_debt_marks()
    }
}

/// Returns whether the units of a charge may be leased. Shadows and trials, charges of a number of units that
/// the store chooses, and charges that can never pass are always sent to it.
#[inline]
pub(in crate::remote) fn is_leased(charge: &Charge<'_>) -> bool {
    charge.quota().lease().is_some()
        && charge.cost() > 0
        && charge.max_cost() == charge.cost()
        && charge.cost() <= charge.quota().capacity()
        && charge.is_live()
}
