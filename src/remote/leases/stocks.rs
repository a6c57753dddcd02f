//! Changes of the stocks by requests, apart from payments.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    super::{fingerprint::Fingerprint, stages::Stages},
    leases::{Leases, Payment, has_debt_marks, is_leased},
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, ReceiptLine, StoreReply, Verdict},
    policy::Charge,
};

impl Leases {
    /// Puts the units of a denied check into the stock that they were taken from. If their grant has left
    /// the stock meanwhile, they come back by themselves.
    pub(super) fn undo(&self, payment: &Payment) {
        let Some(table) = self.table() else { return };
        if let Some(entry) = table.lock(payment.fingerprint).find(payment.fingerprint) {
            entry.stock.undo(&payment.taken);
        }
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
        let Some(table) = self.table() else { return };
        let mut entries = table.lock(fingerprint);
        let Some(entry) = entries.find(fingerprint) else { return };
        entry.stock.record(asked_at, time, reply.standing);
        if reply.verdict == Verdict::Passed {
            reply.standing = entry.stock.standing(asked_at).1;
        }
    }

    /// Refunds the units of a receipt's line to the stock that they were taken from. Returns `None` if
    /// the store has to refund them.
    pub(super) fn refund(&self, line: &ReceiptLine) -> Option<ChargeReply> {
        let (table, charge) = (self.table()?, line.charge());
        let fingerprint = table.fingerprint(charge);
        let mut entries = table.lock(fingerprint);
        let entry = entries.find(fingerprint)?;
        let is_open = entry.stock.quota() == charge.quota()
            && line.units() > 0
            && entry.stock.refund(line.mark(), line.units());
        let (_, standing) = entry.stock.standing(self.now());
        let (units, mark) = (line.units(), line.mark());
        is_open.then_some(ChargeReply { verdict: Verdict::Passed, units, standing, mark })
    }

    /// Returns the units in the stock of each charge.
    pub(super) fn units(&self, charges: &[Charge<'_>]) -> SmallVec<[u64; 2]> {
        let now = self.now();
        let units = |charge| {
            let table = self.table()?;
            let fingerprint = table.fingerprint(charge);
            let mut entries = table.lock(fingerprint);
            Some(entries.find(fingerprint)?.stock.units_at(now))
        };
        charges.iter().map(|charge| units(charge).unwrap_or(0)).collect()
    }

    /// Adds the stocks of these charges to the reply to a peek. `before` are the
    /// [units](Self::units) in the stocks before the peek was sent: those of a renewal that was granted
    /// meanwhile may be in the reply as well.
    pub(super) fn add_stock(&self, charges: &[Charge<'_>], before: &[u64], reply: &mut StoreReply) {
        let Some(table) = self.table() else { return };
        let now = self.now();
        for ((charge, before), reply) in charges.iter().zip(before).zip(&mut reply.charges) {
            let fingerprint = table.fingerprint(charge);
            let mut entries = table.lock(fingerprint);
            let Some(entry) = entries.find(fingerprint) else { continue };
            let ChargeReply { verdict, standing, .. } = reply;
            let units = entry.stock.units_at(now).min(*before);
            standing.remaining = standing.remaining.saturating_add(units).min(standing.limit);
            if *verdict == Verdict::Refused
                && is_leased(charge)
                && entry.stock.holds(charge.cost(), now)
            {
                (*verdict, standing.retry_after) = (Verdict::Passed, None);
            }
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

    fn pay_forced_charge(&self, charge: &Charge<'_>, pause: u64) {
        // The store does not spend the units of a shadow beyond the limit.
        let Some(table) = self.table().filter(|_| !charge.is_shadow()) else { return };
        let now = self.now();
        let fingerprint = table.fingerprint(charge);
        let mut entries = table.lock(fingerprint);
        let Some(entry) = entries.find(fingerprint) else { return };
        let resume_at = now.saturating_add(pause);
        let leftovers = entry.stock.pay_forced(charge.cost(), now, resume_at);
        self.add_leftovers(entry.lines(leftovers));
    }

    /// Empties the stocks of these charges before a reset or a block is sent, and pauses their
    /// renewals until it has arrived. Renewals in flight are not used. The units are refunded if the
    /// store still counts them.
    ///
    /// A key without a stock gets an empty one, which is paused as well.
    pub(super) fn withdraw(&self, stages: &Arc<Stages>, charges: &[Charge<'_>], are_counted: bool) {
        let now = self.now();
        let resume_at = now.saturating_add(self.pause);
        for charge in charges.iter().filter(|charge| charge.quota().lease().is_some()) {
            let table = self.table_or_new();
            let fingerprint = table.fingerprint(charge);
            let mut entries = table.lock(fingerprint);
            if entries.find(fingerprint).is_none() && !self.is_closed() {
                self.start_keeper(stages);
                let has_debt_marks = has_debt_marks(stages, charge);
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

    /// Returns the number of keys with a stock, and the number of units in all stocks.
    pub(in crate::remote) fn held(&self) -> (usize, u64) {
        let (mut keys, mut units) = (0, 0);
        if let Some(table) = self.table() {
            let now = self.now();
            table.retain(|entry| {
                let held = entry.stock.units_at(now);
                keys += usize::from(held > 0);
                units += held;
                true
            });
        }
        (keys, units)
    }
}
