//! Several processes on one key of a store, in virtual time: events in their order, each of which
//! does what a step of the lease layer does.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    super::grants::Taken,
    cases::{Case, Cases},
    checker::Use,
    event::{Call, Event, Step},
    plan::{Mutant, Plan, ProcessPlan, Suspended},
    process::{Process, SkewedClock},
    shared::{Reply, SentCharge, Shared},
};
use crate::{decision::Mark, quota::Quota, seed::Random};

/// The time in microseconds for which a check waits for the store.
pub(super) const CHECK_TIMEOUT_MICROS: u64 = 50_000;

/// The charge that paid for a use.
#[derive(Debug, Clone, Copy)]
pub(super) enum PaidBy {
    Lease(Taken),
    Check(Mark),
}

/// A use, with what its caller needs for a refund.
#[derive(Debug, Clone, Copy)]
pub(super) struct UseReceipt {
    pub(super) life: u32,
    pub(super) quota: Quota,
    pub(super) paid_by: PaidBy,
}

/// The counts of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    /// The checks, admitted checks and admitted units of each process.
    pub(super) checks: Vec<u64>,
    pub(super) admitted: Vec<u64>,
    pub(super) units: Vec<u64>,
    /// The calls to the store: leases, checks and refunds.
    pub(super) calls: [u64; 3],
}

pub(super) struct Fleet<'p> {
    pub(super) plan: &'p Plan,
    pub(super) random: Random,
    /// The workloads have random numbers of their own: a fleet that leases has the same checks as one
    /// that does not.
    arrivals: Random,
    pub(super) now: u64,
    events: BinaryHeap<Reverse<Event>>,
    pub(super) numbers: u64,
    pub(super) shared: Shared,
    pub(super) processes: Vec<Process>,
    /// The uses, and the receipt of each.
    pub(super) uses: Vec<Use>,
    pub(super) receipts: Vec<UseReceipt>,
    pub(super) totals: Totals,
    pub(super) cases: Cases,
    /// The time at which the last process changed its quota.
    pub(super) changed_at: u64,
}

/// Returns the quota itself, without its lease: what a mutant counts by.
fn without_lease(quota: &Quota) -> Quota {
    Quota::new(quota.limit(), quota.window(), quota.algorithm()).expect("valid")
}

pub(super) fn lease_micros(quota: &Quota) -> u64 {
    quota.lease().map_or(0, |lease| lease.as_micros() as u64)
}

impl<'p> Fleet<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        let counted = match plan.mutant {
            Some(Mutant::CountsWithoutLease) => without_lease,
            _ => Quota::counted,
        };
        let mut random = Random(plan.seed);
        let start = |process: &ProcessPlan| {
            let clock = SkewedClock { origin: random.below(1 << 40), skew_ppb: process.skew_ppb };
            Process::new(clock, plan.quota, plan.start)
        };
        let processes: Vec<_> = plan.processes.iter().map(start).collect();
        let count = processes.len();
        let zeros = || vec![0; count];
        let mut fleet = Self {
            plan,
            random,
            arrivals: Random(!plan.seed),
            now: plan.start,
            events: BinaryHeap::new(),
            numbers: 0,
            shared: Shared::new(&plan.quota, counted),
            processes,
            uses: Vec::new(),
            receipts: Vec::new(),
            totals: Totals { checks: zeros(), admitted: zeros(), units: zeros(), calls: [0; 3] },
            cases: Cases::default(),
            changed_at: 0,
        };
        let lease = lease_micros(&plan.quota).max(1);
        for process in 0..count {
            let (first, tick) = (fleet.gap(process), fleet.random.below(lease));
            fleet.after(first, process, Step::Arrives);
            if plan.processes[process].leases {
                fleet.after(tick, process, Step::Ticks);
            }
            if let Some((quota, at)) = plan.change {
                let late = fleet.random.below(lease);
                fleet.after(at + late - plan.start, process, Step::Changes(quota));
            }
        }
        fleet
    }

    /// Runs until the end of the plan.
    pub(super) fn run(&mut self) {
        self.run_until(self.plan.end);
    }

    pub(super) fn run_until(&mut self, end: u64) {
        while let Some(Reverse(mut event)) = self.events.pop() {
            if event.at >= end {
                self.events.push(Reverse(event));
                return;
            }
            self.now = event.at;
            let process = &self.processes[event.process];
            let at_store = matches!(event.step, Step::AtStore { .. });
            if !at_store && process.frozen_until > self.now {
                event.at = process.frozen_until;
                self.events.push(Reverse(event));
                continue;
            }
            let is_stale = event.life != process.life;
            let number = event.process;
            match event.step {
                Step::Arrives => self.arrives(number),
                Step::Ticks => self.ticks(number),
                Step::Changes(quota) => self.changes(number, quota),
                Step::AtStore { call, quota, answer_after } => {
                    let reply = self.at_store(number, call, &quota, answer_after);
                    if let (Some(reply), Some(after)) = (reply, answer_after) {
                        let step = Step::Answered { call, quota, reply };
                        self.push(self.now + after, number, event.life, step);
                    }
                }
                _ if is_stale => {}
                Step::Reads { taken, waits } => self.reads(number, &taken, waits),
                Step::TakesAfter { read, cost, waits } => {
                    self.takes_after(number, read, cost, waits);
                }
                Step::PutsBack(taken) => self.puts_back(number, &taken),
                Step::Polls { ask, quota } => self.polls(number, ask, quota),
                Step::StopsWaiting(check) => self.stops_waiting(number, check),
                Step::Answered { call, quota, reply } => {
                    self.answered(number, call, quota, &reply);
                }
                Step::TimedOut(call) => self.timed_out(number, call),
                Step::Refunds(of) => self.refunds(number, of),
            }
        }
    }

    /// Sends a call to the store. The call or its answer may be late or lost.
    pub(super) fn send(&mut self, number: usize, call: Call, quota: Quota) {
        let kind = match call {
            Call::Lease(_) => 0,
            Call::Check { .. } => 1,
            Call::Refund { .. } => 2,
        };
        self.totals.calls[kind] += 1;
        let faults = self.plan.faults;
        let (there, back) = (self.way(), self.way());
        let (arrives, answered) = (!self.happens(faults.lost), !self.happens(faults.lost));
        let timeout = match call {
            Call::Lease(_) => lease_micros(&quota) / self.random.one(&[1, 4]),
            Call::Check { .. } | Call::Refund { .. } => CHECK_TIMEOUT_MICROS,
        };
        let in_time = arrives && answered && there + back < timeout;
        if arrives {
            let answer_after = in_time.then_some(back);
            self.after(there, number, Step::AtStore { call, quota, answer_after });
        } else {
            self.cases.count_if(matches!(call, Call::Lease(_)), Case::LostRequest);
        }
        if !in_time {
            self.after(timeout, number, Step::TimedOut(call));
        }
    }

    fn at_store(
        &mut self,
        number: usize,
        call: Call,
        quota: &Quota,
        answer_after: Option<u64>,
    ) -> Option<Reply> {
        let (cost, lease_up_to) = match call {
            Call::Lease(ask) => (ask.cost, ask.max),
            Call::Check { cost, .. } => (cost, 0),
            Call::Refund { units, mark, of } => {
                let refunded = self.shared.refund(self.now, quota, units, mark);
                if let Some(of) = of {
                    self.uses[of].units -= refunded;
                }
                return None;
            }
        };
        let charge = SentCharge { quota: *quota, cost, lease_up_to };
        let reply = self.shared.acquire(self.now, &charge);
        if lease_up_to > 0 {
            self.cases.count_if(reply.units == 0, Case::Denied);
            self.cases.count_if(reply.units > 0 && answer_after.is_none(), Case::LostGrant);
        } else if reply.units > 0 {
            let count = self.processes.len();
            let leased = (0..count).any(|other| other != number && self.holds_units(other));
            self.cases.count_if(leased, Case::Direct);
        }
        Some(reply)
    }

    /// Returns the time until the next check of a process.
    pub(super) fn gap(&mut self, number: usize) -> u64 {
        let workload = self.plan.processes[number].workload;
        let uniform = (self.arrivals.number() >> 11) as f64 / (1_u64 << 53) as f64;
        // Time that is lost by rounding is in the next gap.
        let exact = workload.mean_gap * -(1.0 - uniform).ln() + self.processes[number].rounded_off;
        let gap = exact as u64;
        self.processes[number].rounded_off = exact - gap as f64;
        let cycle = workload.active + workload.idle;
        let since_start = self.now + gap - self.plan.start;
        let Some(active_for) = since_start.checked_sub(workload.delay) else {
            return gap + workload.delay - since_start;
        };
        let in_cycle = active_for % cycle;
        if in_cycle < workload.active { gap } else { gap + cycle - in_cycle }
    }

    /// Returns the time for which a task is suspended, mostly 0.
    pub(super) fn pause(&mut self, number: usize) -> u64 {
        let Suspended { per_mille, pause: (shortest, longest) } =
            self.plan.processes[number].suspended;
        if !self.happens(per_mille) {
            return 0;
        }
        let thousandths = shortest + self.random.below(longest - shortest);
        lease_micros(&self.plan.quota) * thousandths / 1000
    }

    fn way(&mut self) -> u64 {
        let (shortest, longest) = self.plan.way;
        let way = shortest + self.random.below(longest - shortest + 1);
        if self.happens(self.plan.faults.delayed) { way + self.up_to_two_leases() } else { way }
    }

    pub(super) fn up_to_two_leases(&mut self) -> u64 {
        let lease = lease_micros(&self.plan.quota).max(1);
        self.random.below(2 * lease)
    }

    pub(super) fn happens(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.random.below(1000) < per_mille
    }

    pub(super) fn after(&mut self, time: u64, process: usize, step: Step) {
        self.push(self.now + time, process, self.processes[process].life, step);
    }

    fn push(&mut self, at: u64, process: usize, life: u32, step: Step) {
        self.numbers += 1;
        let number = self.numbers;
        self.events.push(Reverse(Event { at, number, process, life, step }));
    }
}
