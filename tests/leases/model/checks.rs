//! The steps of a check: stock, deny cache, store. A renewal is sent beside it.

use std::mem;

use super::{
    super::{grants::Taken, stock::RenewalRequest},
    cases::Case,
    checker::Use,
    event::{Call, Step},
    fleet::{Fleet, PaidBy, UseReceipt, lease_micros},
    plan::{Mutant, Polling},
    process::{KnownDenial, Process},
    shared::Reply,
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Mark, Standing, Verdict},
    quota::Quota,
};

/// The longest time for which the deny cache answers, in microseconds.
const MAX_CACHED_MICROS: u64 = 1_000_000;

impl Fleet<'_> {
    pub(super) fn arrives(&mut self, number: usize) {
        let gap = self.gap(number);
        self.after(gap, number, Step::Arrives);
        let faults = self.plan.faults;
        if self.happens(faults.crashed) {
            self.cases.count_if(self.holds_units(number), Case::CrashedWithStock);
            return self.processes[number].restart(self.now);
        }
        if self.happens(faults.frozen) {
            return self.freezes(number);
        }
        let cost = 1 + self.random.below(self.plan.max_cost);
        self.totals.checks[number] += 1;
        let now = self.local(number);
        self.processes[number].stock.observe(now, cost);
        self.check(number, cost);
    }

    fn check(&mut self, number: usize, cost: u64) {
        if !self.plan.processes[number].leases {
            return self.without_stock(number, cost);
        }
        if self.plan.mutant == Some(Mutant::ReadsClockFirst) {
            let read = self.local(number);
            match self.pause(number) {
                0 => self.takes_after(number, read, cost),
                pause => self.after(pause, number, Step::TakesAfter { read, cost }),
            }
            return;
        }
        match self.processes[number].stock.take(cost) {
            None => self.without_stock(number, cost),
            Some(taken) => {
                self.renews(number, 0);
                match self.pause(number) {
                    0 => self.reads(number, &taken),
                    pause => self.after(pause, number, Step::Reads { taken }),
                }
            }
        }
    }

    pub(super) fn reads(&mut self, number: usize, taken: &Taken) {
        let now = self.local(number);
        if taken.is_usable(now) {
            return self.uses_stock(number, taken);
        }
        self.cases.count(Case::TakenTooLate);
        self.discards(number, taken);
        self.without_stock(number, taken.units);
    }

    pub(super) fn takes_after(&mut self, number: usize, read: u64, cost: u64) {
        match self.processes[number].stock.take(cost) {
            Some(taken) if taken.is_usable(read) => self.uses_stock(number, &taken),
            Some(taken) => {
                self.discards(number, &taken);
                self.without_stock(number, cost);
            }
            None => self.without_stock(number, cost),
        }
        self.renews(number, 0);
    }

    fn discards(&mut self, number: usize, taken: &Taken) {
        let process = &mut self.processes[number];
        let quota = process.quota;
        if !process.stock.discard(taken) {
            let call = Call::Refund { units: taken.units, mark: taken.mark, of: None };
            self.send(number, call, quota);
        }
    }

    fn uses_stock(&mut self, number: usize, taken: &Taken) {
        if self.happens(self.plan.faults.undo) {
            self.cases.count(Case::Undone);
            let pause = self.pause(number);
            return self.after(pause, number, Step::PutsBack(*taken));
        }
        self.counts_use(number, taken);
        self.admits(number, taken.units, PaidBy::Lease(*taken));
    }

    /// Decides a check that found no units in the stock.
    fn without_stock(&mut self, number: usize, cost: u64) {
        let now = self.local(number);
        let process = &self.processes[number];
        if process.denial.until > now && cost >= process.denial.cost {
            return;
        }
        let quota = process.quota;
        if self.plan.processes[number].leases {
            self.renews(number, cost);
        }
        self.send(number, Call::Check { cost, sent_at: now }, quota);
        self.yields(number);
    }

    /// Starts a renewal if the stock is low, or does not have the cost of a check.
    fn renews(&mut self, number: usize, cost: u64) {
        let now = self.local(number);
        let process = &mut self.processes[number];
        if let Some(ask) = process.stock.next_renewal(now, process.round_trip, cost) {
            self.starts(number, ask);
        }
    }

    /// Starts the task of a renewal.
    fn starts(&mut self, number: usize, ask: RenewalRequest) {
        let process = &mut self.processes[number];
        let quota = process.quota;
        match self.plan.processes[number].polling {
            Polling::AtOnce => self.polls(number, ask, quota),
            Polling::WhileWaiting => process.unpolled.push((ask, quota)),
            Polling::Late => {
                let late = self.random.below(2) * self.up_to_two_leases();
                self.after(late, number, Step::Polls { ask, quota });
            }
        }
    }

    /// Polls the task of a renewal for the first time, which sends it.
    pub(super) fn polls(&mut self, number: usize, mut ask: RenewalRequest, quota: Quota) {
        let now = self.local(number);
        let started_at = ask.sent_at;
        let process = &mut self.processes[number];
        if process.stock.send(&mut ask, now) {
            self.cases.count_if(now > started_at + lease_micros(&quota) / 2, Case::SentLate);
            self.send(number, Call::Lease(ask), quota);
        } else {
            self.cases.count(Case::NeverSent);
        }
    }

    /// Lets the tasks run that wait for their first poll, because a check waits.
    fn yields(&mut self, number: usize) {
        for (ask, quota) in mem::take(&mut self.processes[number].unpolled) {
            self.polls(number, ask, quota);
        }
    }

    pub(super) fn answered(&mut self, number: usize, call: Call, quota: Quota, reply: &Reply) {
        let now = self.local(number);
        let Reply { time, units, mark, standing } = *reply;
        let process = &mut self.processes[number];
        let (cost, sent_at) = match call {
            Call::Lease(ask) => (ask.cost, ask.sent_at),
            Call::Check { cost, sent_at } => (cost, sent_at),
            Call::Refund { .. } => return,
        };
        process.round_trip -= process.round_trip / 8;
        process.round_trip += now.saturating_sub(sent_at) / 8;
        if let (0, Some(wait)) = (units, standing.retry_after) {
            let until = sent_at + wait.min(MAX_CACHED_MICROS);
            process.denial = KnownDenial { cost, until };
        }
        match call {
            Call::Lease(ask) if units == 0 => process.stock.denied(&ask, time, standing),
            Call::Lease(ask) => {
                let time = self.time_of_grant(time, &quota);
                self.counts_grant((sent_at, now), time, &quota);
                let reply = ChargeReply::new(Verdict::Passed, units, standing, mark);
                let leftovers = self.processes[number].stock.granted(&ask, time, &reply);
                self.returns(number, leftovers, quota);
            }
            Call::Check { .. } => {
                if units > 0 {
                    // The store decided between the call and its return: at its own time.
                    self.admits_at(time.as_micros(), number, units, PaidBy::Check(mark));
                }
            }
            Call::Refund { .. } => {}
        }
    }

    pub(super) fn timed_out(&mut self, number: usize, call: Call) {
        let Call::Lease(ask) = call else { return };
        if self.plan.mutant == Some(Mutant::UsesLostAnswer) {
            let standing = Standing::full(ask.max);
            let reply = ChargeReply::new(Verdict::Passed, ask.max, standing, Mark::default());
            let time = Timestamp::from_micros(self.now);
            let _ = self.processes[number].stock.granted(&ask, time, &reply);
        } else {
            self.processes[number].stock.lost(&ask);
        }
    }

    fn admits(&mut self, number: usize, units: u64, paid_by: PaidBy) {
        self.admits_at(self.now, number, units, paid_by);
    }

    fn admits_at(&mut self, time: u64, number: usize, units: u64, paid_by: PaidBy) {
        self.totals.admitted[number] += 1;
        self.totals.units[number] += units;
        if !self.plan.is_judged {
            return;
        }
        let Process { life, quota, .. } = &self.processes[number];
        self.uses.push(Use { time, units });
        if self.plan.faults.refunded == 0 {
            // A large fleet has no memory for receipts that nothing reads.
            return;
        }
        self.receipts.push(UseReceipt { life: *life, quota: *quota, paid_by });
        if self.happens(self.plan.faults.refunded) {
            let pause = self.up_to_two_leases();
            self.after(pause, number, Step::Refunds(self.uses.len() - 1));
        }
    }
}
