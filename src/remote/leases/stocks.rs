//! The stocks of a limiter's busy keys. Nothing here waits, or calls the store.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use smallvec::SmallVec;

use super::{
    super::{fingerprint::Fingerprint, guarded::Guarded},
    grants::Taken,
    table::{Entry, NewRenewal, RenewalEnd, Table},
};
use crate::{
    clock::{Clock, Timestamp, micros},
    decision::{ChargeReply, Checked, ReceiptLine, Source, StoreReply, Verdict},
    policy::Charge,
    sync::Mutex,
};

/// The stocks of a limiter's busy keys, and the units that the store has to refund.
#[derive(Debug)]
pub(super) struct Stocks {
    /// The store from which units are leased.
    pub(super) guarded: Guarded,
    pub(super) table: Table,
    clock: Arc<dyn Clock>,
    /// The time after a reset or a block in which no renewal is sent, in microseconds.
    pause: u64,
    /// The age from which on no check waits for a renewal in flight, in microseconds: half of the deadline.
    patience: u64,
    /// True if no more stocks are created.
    is_closed: AtomicBool,
    /// Units to refund to the store.
    leftovers: Mutex<Vec<ReceiptLine>>,
    /// Locked while units are refunded.
    pub(super) refunds: tokio::sync::Mutex<()>,
}

/// A check that is paid from stock, charge by charge.
pub(super) struct Payment<'r> {
    pub(super) attempts: SmallVec<[Attempt; 3]>,
    /// The reply to the charges that are paid.
    pub(super) reply: &'r mut StoreReply,
    /// The time of the last attempt.
    pub(super) now: u64,
}

/// An attempt to pay a charge from stock.
pub(super) struct Attempt {
    fingerprint: Fingerprint,
    pub(super) result: Attempted,
}

/// The result of an attempt to pay a charge from stock.
pub(super) enum Attempted {
    /// The charge is paid with these units.
    Paid(Taken),
    /// The key is busy, and its stock is too small. Contains the end of the renewal, if one is in flight.
    Short(Option<RenewalEnd>),
    /// The charge cannot be leased, or its key is not busy.
    Cold,
}

impl<'r> Payment<'r> {
    /// Creates the payment of a check none of whose charges is paid yet, and empties its reply.
    pub(super) fn new(reply: &'r mut StoreReply) -> Self {
        reply.charges.clear();
        (reply.time, reply.source) = (Timestamp::default(), Source::Leased);
        Self { attempts: SmallVec::new(), reply, now: 0 }
    }
}

/// The maximum number of receipt lines on their way to the store. Units beyond it come back by
/// themselves when they leave the window.
const MAX_LEFTOVERS: usize = 1 << 14;

impl Stocks {
    pub(super) fn new(guarded: Guarded, clock: Arc<dyn Clock>, pause: u64) -> Self {
        Self {
            table: Table::new(guarded.traits.marks_debts),
            patience: guarded.deadline.map_or(u64::MAX, |deadline| micros(deadline / 2)),
            guarded,
            clock,
            pause,
            is_closed: AtomicBool::new(false),
            leftovers: Mutex::default(),
            refunds: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }

    /// Pays a charge from stock as a part of `payment`. Returns a renewal to start, if little is left. `round_trip` is
    /// the time from a request to its reply. `is_demand` is false for a charge that does not count as demand.
    pub(super) fn pay(
        &self,
        charge: &Charge<'_>,
        round_trip: u64,
        is_demand: bool,
        payment: &mut Payment<'_>,
    ) -> Option<Box<NewRenewal>> {
        let Payment { attempts, reply, now } = payment;
        let fingerprint = self.table.fingerprint(charge);
        let mut entries = self.table.lock(fingerprint);
        let Some(entry) = entries.find(fingerprint) else {
            drop(entries);
            *now = self.now();
            let result = self.count(charge, fingerprint, *now);
            attempts.push(Attempt { fingerprint, result });
            return None;
        };
        if entry.stock.quota() != charge.quota() && !self.change_quota(entry, charge) {
            attempts.push(Attempt { fingerprint, result: Attempted::Cold });
            return None;
        }
        let cost = charge.cost();
        let taken = self.take(entry, cost, now);
        if is_demand {
            entry.stock.observe(*now, cost);
        }
        let unpaid_cost = if taken.is_some() { 0 } else { cost };
        let request = entry.stock.next_renewal(*now, round_trip, unpaid_cost);
        let renewal = request.map(|request| Box::new(entry.begin_renewal(request)));
        if let Some(taken) = taken {
            reply.time = reply.time.max(entry.stock.time(*now));
            reply.charges.push(ChargeReply {
                verdict: Verdict::Passed,
                units: cost,
                standing: entry.stock.standing(*now),
                mark: taken.mark,
            });
            attempts.push(Attempt { fingerprint, result: Attempted::Paid(taken) });
        } else {
            let is_renewing = entry.stock.is_renewing(*now, self.patience);
            let end = entry.renewal_end.clone().filter(|_| is_renewing);
            attempts.push(Attempt { fingerprint, result: Attempted::Short(end) });
        }
        renewal
    }

    /// Counts a check of several charges, all of whose keys are busy, as demand.
    pub(super) fn observe(&self, charges: &[Charge<'_>], payment: &Payment<'_>) {
        for (charge, attempt) in charges.iter().zip(&payment.attempts) {
            self.with_stock(attempt.fingerprint, |entry| {
                entry.stock.observe(payment.now, charge.cost());
            });
        }
    }

    /// Puts the units of a denied check into the stocks that they were taken from. If their grant has left
    /// the stock meanwhile, they come back by themselves.
    pub(super) fn undo(&self, payment: &Payment<'_>) {
        for Attempt { fingerprint, result } in &payment.attempts {
            if let Attempted::Paid(taken) = result {
                self.with_stock(*fingerprint, |entry| entry.stock.undo(taken));
            }
        }
    }

    /// Records the store's reply to a check that was not paid from stock, and adds the stocks to it as far as its
    /// charges have passed.
    pub(super) fn record<'p>(
        &self,
        mut check: Box<Checked<'p>>,
        asked_at: u64,
    ) -> Box<Checked<'p>> {
        let Checked { charges, reply } = &mut *check;
        if reply.source != Source::Shared {
            return check;
        }
        let time = reply.time;
        for (charge, reply) in charges.iter().zip(&mut reply.charges) {
            self.with_stock_of(charge, |entry| {
                if entry.stock.quota() != charge.quota() {
                    return;
                }
                entry.stock.record(asked_at, time, reply.standing);
                if reply.verdict == Verdict::Passed {
                    reply.standing = entry.stock.standing(asked_at);
                }
            });
        }
        check
    }

    /// Refunds the units of a receipt's line to the stock that they were taken from. Returns `None` if
    /// the store has to refund them.
    pub(super) fn refund(&self, line: &ReceiptLine) -> Option<ChargeReply> {
        let ReceiptLine { ref charge, units, mark } = *line;
        let refunded = self.with_stock_of(charge, |entry| {
            let is_open = entry.stock.quota() == charge.quota()
                && units > 0
                && entry.stock.refund(mark, units);
            let standing = entry.stock.standing(self.now());
            is_open.then_some(ChargeReply { verdict: Verdict::Passed, units, standing, mark })
        });
        refunded.flatten()
    }

    /// Adds the stocks of these charges to the reply to a peek.
    pub(super) fn add_stock(&self, charges: &[Charge<'_>], reply: &mut StoreReply) {
        let now = self.now();
        for (charge, reply) in charges.iter().zip(&mut reply.charges) {
            self.with_stock_of(charge, |entry| {
                let ChargeReply { verdict, standing, .. } = reply;
                let units = entry.stock.units_at(now);
                standing.remaining = standing.remaining.saturating_add(units).min(standing.limit);
                let is_refused = *verdict == Verdict::Refused && charge.may_be_leased();
                if is_refused && entry.stock.holds(charge.cost(), now) {
                    (*verdict, standing.retry_after) = (Verdict::Passed, None);
                }
            });
        }
    }

    /// Empties the stocks of these charges, and pauses their renewals. By the end of the pause, a reset or a block that is
    /// sent now, or a charge beyond the limit that was sent, has arrived. Renewals in flight are not used. The units are
    /// refunded if the store still counts them.
    ///
    /// A key without a stock gets an empty one, which is paused as well.
    pub(super) fn withdraw(&self, charges: &[Charge<'_>], are_counted: bool) {
        let now = self.now();
        let resume_at = now.saturating_add(self.pause);
        for charge in charges.iter().filter(|charge| charge.quota().lease().is_some()) {
            let fingerprint = self.table.fingerprint(charge);
            let mut entries = self.table.lock(fingerprint);
            if entries.find(fingerprint).is_none() && !self.is_closed() {
                self.table.insert(&mut entries, fingerprint, charge, now);
            }
            let Some(entry) = entries.find(fingerprint) else { continue };
            let generation = self.table.next_generation();
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
        self.table.lock(fingerprint).find(fingerprint).map(act)
    }

    pub(super) fn has_stock(&self, charge: &Charge<'_>) -> bool {
        self.with_stock_of(charge, |_| ()).is_some()
    }

    /// Calls `act` like [`with_stock`](Self::with_stock), for the key of a charge.
    fn with_stock_of<T>(
        &self,
        charge: &Charge<'_>,
        act: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        self.with_stock(self.table.fingerprint(charge), act)
    }

    /// Takes units that may be used now. Sets `now` to the time of use.
    fn take(&self, entry: &mut Entry, cost: u64, now: &mut u64) -> Option<Taken> {
        loop {
            let taken = entry.stock.take(cost);
            // The clock is read after the units were taken: this is the time at which they are used.
            *now = self.now();
            match taken {
                Some(late) if !late.is_usable(*now) => drop(entry.stock.discard(&late)),
                taken => return taken,
            };
        }
    }

    /// Counts a check of a key without a stock.
    fn count(&self, charge: &Charge<'_>, fingerprint: Fingerprint, now: u64) -> Attempted {
        if !self.is_closed() && self.table.observe(fingerprint, charge, now) {
            Attempted::Short(None)
        } else {
            Attempted::Cold
        }
    }

    /// Replaces the quota of a stock by the quota of a charge, unless the charge was made under an earlier
    /// quota than the stock. Returns whether it was replaced.
    fn change_quota(&self, entry: &mut Entry, charge: &Charge<'_>) -> bool {
        if charge.quota_in_force() != *charge.quota() {
            return false;
        }
        let leftovers = self.table.change_quota(entry, charge, self.now());
        self.add_leftovers(entry.lines(leftovers));
        entry.charge = charge.clone().into_owned();
        true
    }
}
