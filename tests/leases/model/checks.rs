//! The steps of a check: stock, deny cache, wait for a renewal, store.

use std::mem;

use super::{
    super::{grants::Taken, stock::RenewalRequest},
    cases::Case,
    checker::Use,
    event::{Call, Step},
    fleet::{CHECK_TIMEOUT_MICROS, Fleet, PaidBy, UseReceipt, lease_micros},
    plan::{Mutant, Polling},
    process::{KnownDenial, Process, WaitingCheck},
    shared::Reply,
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Mark, Standing, Verdict},
    quota::Quota,
};

/// The longest time for which the deny cache answers, in microseconds.
const MAX_CACHED_MICROS: u64 = 1_000_000;

/// The number of renewals for which a check waits at most.
const MAX_WAITS: u32 = 2;

/// The longest time for which a check waits for a renewal: half of its deadline.
const MAX_WAIT_MICROS: u64 = CHECK_TIMEOUT_MICROS / 2;

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
        self.check(number, cost, 0);
    }

    fn check(&mut self, number: usize, cost: u64, waits: u32) {
        if !self.plan.processes[number].leases {
            return self.without_stock(number, cost, MAX_WAITS);
        }
        if self.plan.mutant == Some(Mutant::ReadsClockFirst) {
            let read = self.local(number);
            match self.pause(number) {
                0 => self.takes_after(number, read, cost, waits),
                pause => self.after(pause, number, Step::TakesAfter { read, cost, waits }),
            }
            return;
        }
        match self.processes[number].stock.take(cost) {
            None => self.without_stock(number, cost, waits),
            Some(taken) => {
                self.renews(number, 0);
                match self.pause(number) {
                    0 => self.reads(number, &taken, waits),
                    pause => self.after(pause, number, Step::Reads { taken, waits }),
                }
            }
        }
    }

    pub(super) fn reads(&mut self, number: usize, taken: &Taken, waits: u32) {
        let now = self.local(number);
        if taken.is_usable(now) {
            return self.uses_stock(number, taken);
        }
        self.cases.count(Case::TakenTooLate);
        self.discards(number, taken);
        self.without_stock(number, taken.units, waits);
    }

    pub(super) fn takes_after(&mut self, number: usize, read: u64, cost: u64, waits: u32) {
        match self.processes[number].stock.take(cost) {
            Some(taken) if taken.is_usable(read) => self.uses_stock(number, &taken),
            Some(taken) => {
                self.discards(number, &taken);
                self.without_stock(number, cost, waits);
            }
            None => self.without_stock(number, cost, waits),
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
    fn without_stock(&mut self, number: usize, cost: u64, waits: u32) {
        let now = self.local(number);
        let process = &self.processes[number];
        if process.denial.until > now && cost >= process.denial.cost {
            return;
        }
        let quota = process.quota;
        if self.plan.processes[number].leases {
            self.renews(number, cost);
            let Process { stock, round_trip, .. } = &self.processes[number];
            let has_time = *round_trip < MAX_WAIT_MICROS / 2;
            if waits < MAX_WAITS && has_time && stock.is_renewing(now, MAX_WAIT_MICROS) {
                return self.waits(number, cost, waits);
            }
        }
        self.send(number, Call::Check { cost, sent_at: now }, quota);
        self.yields(number);
    }

    /// Starts a renewal if the stock is low, or does not have the cost of a check.
    fn renews(&mut self, number: usize, cost: u64) {
        let now = self.local(number);
        let process = &mut self.processes[number];
        if let Some(ask) = process.stock.next_renewal(now, process.round_trip, cost) {
            let ask = process.stock.shared(ask, self.plan.instances);
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

    /// Lets a check wait for the renewal in flight.
    fn waits(&mut self, number: usize, cost: u64, waits: u32) {
        let check = WaitingCheck { number: self.numbers, cost, waits: waits + 1 };
        self.processes[number].waiting.push(check);
        self.yields(number);
        self.after(MAX_WAIT_MICROS, number, Step::StopsWaiting(check.number));
    }

    pub(super) fn stops_waiting(&mut self, number: usize, check: u64) {
        let waiting = &mut self.processes[number].waiting;
        let Some(place) = waiting.iter().position(|it| it.number == check) else { return };
        self.cases.count(Case::StoppedWaiting);
        let check = waiting.swap_remove(place);
        self.check(number, check.cost, MAX_WAITS);
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
            let until = sent_at + (wait.as_micros() as u64).min(MAX_CACHED_MICROS);
            process.denial = KnownDenial { cost, until };
        }
        match call {
            Call::Lease(ask) if units == 0 => process.stock.denied(&ask, time, standing),
            Call::Lease(ask) => {
                let time = self.time_of_grant(time, &quota);
                self.counts_grant((sent_at, now), time, &quota);
                let reply = ChargeReply { verdict: Verdict::Passed, units, standing, mark };
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
        self.wakes(number);
    }

    pub(super) fn timed_out(&mut self, number: usize, call: Call) {
        let Call::Lease(ask) = call else { return };
        if self.plan.mutant == Some(Mutant::UsesLostAnswer) {
            let standing = Standing::full(ask.max);
            let reply = ChargeReply {
                verdict: Verdict::Passed,
                units: ask.max,
                standing,
                mark: Mark::default(),
            };
            let time = Timestamp::from_micros(self.now);
            let _ = self.processes[number].stock.granted(&ask, time, &reply);
        } else {
            self.processes[number].stock.lost(&ask);
        }
        self.wakes(number);
    }

    /// Continues the checks that wait for the renewal.
    pub(super) fn wakes(&mut self, number: usize) {
        let waiting = mem::take(&mut self.processes[number].waiting);
        self.cases.count_if(waiting.len() > 1, Case::Shared);
        for WaitingCheck { cost, waits, .. } in waiting {
            self.check(number, cost, waits);
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
