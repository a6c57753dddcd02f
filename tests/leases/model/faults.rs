//! The steps beside the checks: refunds, timers, crashes, pauses and changes of the quota.

use super::{
    super::grants::{Leftovers, Taken},
    cases::Case,
    event::{Call, Step},
    fleet::{Fleet, PaidBy, lease_micros},
    plan::Mutant,
};
use crate::{
    algorithms::{self, Returns},
    clock::Timestamp,
    quota::Quota,
};

impl Fleet<'_> {
    /// Returns the reading of the clock of a process.
    pub(super) fn local(&self, number: usize) -> u64 {
        self.processes[number].clock.read(self.now)
    }

    /// Returns whether a process has units that it may use.
    pub(super) fn holds_units(&self, number: usize) -> bool {
        self.processes[number].stock.units_at(self.local(number)) > 0
    }

    pub(super) fn ticks(&mut self, number: usize) {
        let lease = lease_micros(&self.processes[number].quota).max(1);
        let gap = 1 + lease / 4 + self.random.below(1 + lease / 4);
        self.after(gap, number, Step::Ticks);
        let now = self.local(number);
        let process = &mut self.processes[number];
        let (leftovers, quota) = (process.stock.take_leftovers(now), process.quota);
        self.cases.count_if(!leftovers.is_empty(), Case::Refunded);
        self.returns(number, leftovers, quota);
    }

    /// Sends refunds of unused units to the store.
    pub(super) fn returns(&mut self, number: usize, leftovers: Leftovers, quota: Quota) {
        for leftover in leftovers {
            let call = Call::Refund { units: leftover.units, mark: leftover.mark, of: None };
            self.send(number, call, quota);
        }
    }

    /// The caller of an admitted check refunds some of its units.
    pub(super) fn refunds(&mut self, number: usize, of: usize) {
        let (receipt, units) = (self.receipts[of], self.uses[of].units);
        if receipt.life != self.processes[number].life || units == 0 {
            return;
        }
        let units = 1 + self.random.below(units);
        let mark = match receipt.paid_by {
            PaidBy::Check(mark) => mark,
            PaidBy::Lease(taken) => {
                if self.processes[number].stock.refund(taken.mark, units) {
                    self.cases.count(Case::BackToStock);
                    self.uses[of].units -= units;
                    return;
                }
                self.cases.count(Case::BackToStore);
                taken.mark
            }
        };
        self.send(number, Call::Refund { units, mark, of: Some(of) }, receipt.quota);
    }

    pub(super) fn puts_back(&mut self, number: usize, taken: &Taken) {
        let process = &mut self.processes[number];
        let quota = process.quota;
        if !process.stock.undo(taken) {
            self.cases.count(Case::UndoneTooLate);
            let call = Call::Refund { units: taken.units, mark: taken.mark, of: None };
            self.send(number, call, quota);
        }
    }

    pub(super) fn freezes(&mut self, number: usize) {
        let pause = self.up_to_two_leases() + self.up_to_two_leases();
        let is_long = pause > lease_micros(&self.processes[number].quota);
        self.cases.count_if(is_long && self.holds_units(number), Case::FrozenPastEnd);
        self.processes[number].frozen_until = self.now + pause;
    }

    pub(super) fn changes(&mut self, number: usize, quota: Quota) {
        let process = &mut self.processes[number];
        let before = process.quota;
        let leftovers = process.change(quota, self.now);
        self.cases.count_if(!leftovers.is_empty(), Case::ChangedWithStock);
        self.changed_at = self.now;
        self.returns(number, leftovers, before);
        self.wakes(number);
    }

    /// Returns the time by which the machine computes the end of a grant.
    pub(super) fn time_of_grant(&self, time: Timestamp, quota: &Quota) -> Timestamp {
        match self.plan.mutant {
            // At the start of a period its whole length is left.
            Some(Mutant::OutlivesPeriod) => {
                let (time, window) = (time.as_micros(), quota.window_micros());
                Timestamp::from_micros(time - time % window)
            }
            _ => time,
        }
    }

    pub(super) fn counts_grant(
        &mut self,
        (sent_at, now): (u64, u64),
        time: Timestamp,
        quota: &Quota,
    ) {
        let lease = lease_micros(quota);
        let usable = quota.lease_micros_at(time);
        self.cases.count_if(usable < lease, Case::CutShort);
        self.cases.count_if(now > sent_at + lease * 3 / 4, Case::LateGrant);
        self.cases.count_if(now > sent_at + usable, Case::DeadGrant);
    }

    pub(super) fn counts_use(&mut self, number: usize, taken: &Taken) {
        let now = self.local(number);
        let process = self.plan.processes[number];
        let quota = self.processes[number].quota;
        let lease = lease_micros(&quota);
        self.cases.count_if(taken.end.saturating_sub(now) <= lease / 20, Case::UsedAtEnd);
        let is_windowed = algorithms::returns(quota.algorithm()) == Returns::ByPeriod;
        let window = quota.window_micros();
        let rest = window - self.now % window;
        self.cases.count_if(is_windowed && rest <= window / 100, Case::UsedAtEdge);
        self.cases.count_if(process.skew_ppb > 800_000, Case::FastClock);
        self.cases.count_if(process.skew_ppb < -800_000, Case::SlowClock);
    }
}
