//! Plays a history against a limiter and the oracle side by side.

use std::{
    collections::{HashMap, HashSet},
    mem,
    time::Duration,
};

use plimsoll::{Charge, Decision, Policy, Quota, limiter::Reservation, store::Verdict};

use super::history::{Change, Cost, History, Move, PlannedCharge, Step, leased};
use crate::{
    CaseCounts, Fixture,
    algorithms::{Returns, returns, with_burst},
    contract::key_quotas::far,
    micros, now,
    oracle::{Ask, Enforcement, Entry, Oracle, Paid, counted},
};

/// Admitted units, less the refunded ones. The bounds hold for these.
#[derive(Debug)]
pub struct Admitted {
    pub entry: Entry,
    pub time: u64,
    pub units: u64,
}

/// The time at which a quota changed, and the number of entries that `admitted` had then.
#[derive(Debug, Clone, Copy)]
pub struct Changed {
    pub time: u64,
    pub admitted: usize,
}

/// A reservation that can be refunded or settled: each charge with its place in `admitted`.
pub type Held = (Reservation, Vec<(Paid, usize)>);

/// The place of the quota that a charge is judged by.
#[derive(Debug, Clone, Copy)]
enum QuotaFrom {
    Policy,
    Key,
    Charge,
}

pub struct Player<'a> {
    pub fixture: &'a Fixture,
    pub tally: &'a CaseCounts,
    pub history: &'a History,
    pub policies: Vec<Policy>,
    /// Policies with the same names, whose quotas never change. Charges bring their own along.
    pub names: Vec<Policy>,
    /// Policies with the same names, whose keys have the quotas that the policies have.
    pub keyed: Vec<Policy>,
    /// The number of checks.
    pub checks: usize,
    /// The last change of each policy's quota.
    pub changes: Vec<Option<Changed>>,
    pub oracle: Oracle,
    pub time: u64,
    pub latest: u64,
    pub last_wait: u64,
    /// The time from which the last denied check would be admitted, by its `retry_after`.
    pub due: u64,
    pub held: Vec<Held>,
    pub admitted: Vec<Admitted>,
    /// A key is judged no earlier than it was last changed.
    pub changed: HashMap<Entry, u64>,
    /// The time of the last charge or refund of each entry, and its quota.
    pub written: HashMap<Entry, (u64, Quota)>,
    pub reset: HashSet<Entry>,
}

pub fn run(fixture: &Fixture, history: &History, tally: &CaseCounts) {
    let names = ["first", "second", "third"];
    let policies = history.quotas.iter().zip(names);
    let policies: Vec<_> =
        policies.map(|(quota, name)| Policy::new(name, *quota).expect("valid")).collect();
    let named = |policy: &Policy| Policy::new(policy.name(), Quota::per_day(1)).expect("valid");
    let mut player = Player {
        fixture,
        tally,
        history,
        changes: vec![None; policies.len()],
        names: policies.iter().map(named).collect(),
        keyed: policies.iter().map(named).collect(),
        checks: 0,
        policies,
        oracle: Oracle::default(),
        time: history.start,
        latest: history.start,
        last_wait: 0,
        due: u64::MAX,
        held: Vec::new(),
        admitted: Vec::new(),
        changed: HashMap::new(),
        written: HashMap::new(),
        reset: HashSet::new(),
    };
    fixture.set(history.start);
    (0..player.policies.len()).for_each(|index| player.set_key_quotas(index));
    for quota in &history.quotas {
        let product = u128::from(quota.limit()) * quota.window().as_micros();
        tally.count_if(product > 1 << 53, "limit x window beyond 2^53");
        let divides = micros(quota.window()).is_multiple_of(quota.limit());
        tally.count_if(!divides, "rate that does not divide");
    }
    for step in &history.steps {
        player.step(step);
    }
    (0..player.policies.len()).for_each(|index| player.bounds_of(index));
    for _ in &player.oracle.healed {
        tally.count("clock set back by more than a window");
    }
}

impl Player<'_> {
    /// The quota by which the store counts a policy.
    pub fn quota(&self, index: usize) -> Quota {
        counted(&self.policies[index].quota(), self.fixture.is_shared())
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Move(by) => self.travel(*by),
            Step::Check { lines, repeat, keep } => {
                self.tally.count_if(*repeat > 2, "burst at one instant");
                for _ in 0..*repeat {
                    let asks = self.asks(lines);
                    self.check(&asks, *keep);
                }
            }
            Step::Peek { lines } => {
                let asks = self.asks(lines);
                let expected = self.oracle.peek(self.time, &asks);
                self.compare(&self.peek(&asks), &expected);
            }
            Step::Refund { which } => self.refund(*which),
            Step::Settle { which, factor } => self.settle(*which, *factor),
            Step::Reset { line } => {
                let entry = (line.policy % self.policies.len(), line.key);
                let charge = self.policies[entry.0].charge(key(entry), 1);
                now(self.fixture.limiter.reset(charge)).expect("the store answers");
                self.oracle.reset(entry);
                self.reset.insert(entry);
                // Charges that the reset has cleared are not refunded as well.
                let other = |(paid, _): &(Paid, usize)| paid.ask.entry != entry;
                let (kept, dropped) =
                    mem::take(&mut self.held).into_iter().partition(|(_, it)| it.iter().all(other));
                self.held = kept;
                self.release(dropped, entry);
                self.tally.count("reset");
            }
            Step::Penalize { line } => self.penalize(line),
            Step::Block { line, part } => self.block(line, *part),
            Step::Unblock { line } => self.unblock(line),
            Step::Change { policy, change } => self.change(*policy, *change),
        }
    }

    /// Returns whether a store may have dropped a key that would matter if the clock went back to
    /// `time`: the key is full now, and was changed after `time` or was not full at `time`. The quota
    /// of the last charge counts too, because the store keeps a key by it.
    fn forgotten(&mut self, time: u64) -> bool {
        let entries = (0..self.policies.len()).flat_map(|policy| [(policy, 0), (policy, 1)]);
        entries.into_iter().any(|entry| {
            let written = self.written.get(&entry).copied();
            let later = written.is_some_and(|(written, _)| written > time);
            let quotas = [Some(self.quota(entry.0)), written.map(|(_, quota)| quota)];
            quotas.into_iter().flatten().any(|quota| {
                let mut full = |time| self.oracle.free(time, entry, &quota) == quota.capacity();
                if full(self.time) && (later || !full(time)) {
                    return true;
                }
                // A key that is blocked now may have been dropped before its block.
                let mut spent =
                    |time| self.oracle.free_behind_block(time, entry, &quota) < quota.capacity();
                !spent(self.time) && spent(time)
            })
        })
    }

    fn travel(&mut self, by: Move) {
        let window = |policy: usize| micros(self.quota(policy % self.policies.len()).window());
        let time = match by {
            Move::Micros(micros) => self.time + micros,
            Move::Window(policy, part) => self.time + part.of(window(policy)),
            Move::Edge(policy, past) => {
                let edge = (self.time / window(policy) + 1) * window(policy);
                edge.saturating_add_signed(past).max(self.time)
            }
            Move::Wait(past) => {
                (self.time + self.last_wait).saturating_add_signed(past).max(self.time)
            }
            Move::Back(policy, part) => self.time.saturating_sub(part.of(window(policy))),
        };
        if time < self.time && self.forgotten(time) {
            return;
        }
        // Beyond, time stands still for the limiter.
        self.time = time.min((1 << 53) - 1);
        self.tally.count_if(self.time < self.latest, "time ran backward");
        self.latest = self.latest.max(self.time);
        self.fixture.set(self.time);
    }

    pub fn asks(&mut self, lines: &[PlannedCharge]) -> Vec<Ask> {
        let lines = lines.iter().map(|line| {
            let entry = (line.policy % self.policies.len(), line.key);
            let quota = self.quota(entry.0);
            let free = self.oracle.free(self.time, entry, &quota);
            let units = |cost| match cost {
                Cost::Units(units) => units,
                Cost::Part(part) => part.of(quota.capacity()),
                Cost::Free(more) => free.saturating_add_signed(more),
                Cost::Over(by) => quota.capacity().saturating_add(by),
            };
            let cost = units(line.cost);
            let most = line.most.map_or(cost, units).max(cost);
            Ask { entry, quota, cost, most, lease: line.lease, enforcement: line.enforcement }
        });
        lines.collect()
    }

    /// Returns the charges under the quotas of the policies, or of their keys, or each with a quota of its
    /// own, which must come to the same.
    fn charges(&self, asks: &[Ask], from: QuotaFrom) -> Vec<Charge<'static>> {
        let charges = asks.iter().map(|ask| {
            let (policy, key) = (ask.entry.0, key(ask.entry));
            let charge = match from {
                QuotaFrom::Policy => self.policies[policy].charge(key, ask.cost),
                QuotaFrom::Key => self.keyed[policy].charge(key, ask.cost),
                QuotaFrom::Charge => {
                    let quota = self.policies[policy].quota();
                    self.names[policy].charge(key, ask.cost).with_quota(quota)
                }
            };
            let charge = match ask.lease {
                true => charge.lease_up_to(ask.most).into_owned(),
                false => charge.up_to(ask.most).into_owned(),
            };
            match ask.enforcement {
                Enforcement::Live => charge,
                Enforcement::Shadow => charge.shadow(),
                Enforcement::Trial => charge.trial(),
            }
        });
        charges.collect()
    }

    pub fn peek(&self, asks: &[Ask]) -> Decision<'static> {
        now(self.fixture.limiter.peek(self.charges(asks, QuotaFrom::Charge)))
            .expect("the store answers")
    }

    fn check(&mut self, asks: &[Ask], keep: bool) {
        let expected = self.oracle.check(self.time, asks);
        self.checks += 1;
        let from = match (self.checks % 3, keep) {
            (0, _) => QuotaFrom::Key,
            (_, true) => QuotaFrom::Policy,
            (_, false) => QuotaFrom::Charge,
        };
        let decision = now(self.fixture.limiter.check(self.charges(asks, from)));
        let decision = decision.expect("the store answers");
        self.compare(&decision, &expected);
        self.count(asks, &expected);
        match decision {
            Decision::Allowed(allowed) => {
                let lines = self.admit(expected.paid);
                if keep {
                    let held = self.fixture.limiter.hold(allowed.into_receipt());
                    self.held.push((held, lines));
                }
            }
            Decision::Denied(denied) => {
                self.admit(expected.paid);
                let wait = denied.retry_after().map(micros);
                let longest = expected.findings.iter().zip(denied.outcomes());
                let binding = longest.filter(|(_, outcome)| outcome.charge().is_live());
                let waits = binding.map(|(finding, outcome)| match finding.verdict {
                    Verdict::OverCapacity => None,
                    _ => Some((finding.retry_after.unwrap_or(0), *outcome.charge().quota())),
                });
                let waits: Option<Vec<(u64, Quota)>> = waits.collect();
                let named = waits.iter().flatten().map(|(wait, quota)| named_wait(*wait, quota));
                assert_eq!(wait, named.max());
                assert_eq!(denied.is_over_capacity(), wait.is_none());
                let binding = denied.binding().expect("a denial has a reason");
                let longest = binding.standing().retry_after.map(micros);
                assert_eq!(longest.map(|wait| named_wait(wait, binding.charge().quota())), wait);
                if let Some(wait) = waits.iter().flatten().map(|(wait, _)| *wait).max()
                    && !beside_a_trial(asks)
                {
                    self.exact(asks, wait);
                }
            }
        }
    }

    fn set_key_quotas(&self, index: usize) {
        let quota = self.policies[index].quota();
        for key in [0, 1].map(|number| key((index, number))) {
            self.keyed[index].set_key_quota(key, quota, far()).expect("there is room");
        }
    }

    fn change(&mut self, policy: usize, change: Change) {
        let index = policy % self.policies.len();
        let old = self.policies[index].quota();
        let (limit, window, algorithm) = (old.limit(), old.window(), old.algorithm());
        let new = match change {
            Change::Limit(part) => Quota::new(part.of(limit).max(1), window, algorithm),
            Change::Window(part) => {
                let window = Duration::from_micros(part.of(micros(window)));
                Quota::new(limit, window, algorithm)
            }
            Change::Burst(part) if returns(algorithm) == Returns::AtRate => {
                let algorithm = with_burst(&old, |burst| part.of(burst).max(1));
                Quota::new(limit, window, algorithm)
            }
            Change::Rate(limit_part, part) => {
                let window = Duration::from_micros(part.of(micros(window)));
                Quota::new(limit_part.of(limit).max(1), window, algorithm)
            }
            Change::Lease(lease) => Ok(leased(old, lease)),
            Change::Burst(_) | Change::Back => Ok(self.history.quotas[index]),
        };
        let Ok(mut new) = new else { return };
        if let Some(lease) = old.lease().filter(|_| new.lease().is_none() && change.keeps_lease()) {
            new = new.leased(lease).unwrap_or(new);
        }
        self.bounds_of(index);
        let counted_old = self.quota(index);
        let free = self.oracle.free(self.time, (index, 0), &counted_old);
        let spent = counted_old.capacity() - free;
        let below = new.limit() < old.limit() && new.limit() < spent;
        let burst = new.limit() == old.limit() && new.window() == old.window();
        let again = new != old
            && self.changes[index].is_some_and(|change| {
                change.time > 0 && self.time - change.time.min(self.time) < micros(new.window())
            });
        for (case, holds) in [
            ("limit raised", new.limit() > old.limit()),
            ("limit lowered", new.limit() < old.limit()),
            ("limit lowered below what is spent", below),
            ("window grown", new.window() > old.window()),
            ("window shrunk", new.window() < old.window()),
            ("burst raised", burst && new.capacity() > old.capacity()),
            ("burst lowered", burst && new.capacity() < old.capacity()),
            ("changed twice within a window", again && spent > 0),
            ("lease begun", old.lease().is_none() && new.lease().is_some()),
            ("lease ended", old.lease().is_some() && new.lease().is_none()),
            ("lease longer", old.lease().is_some() && new.lease() > old.lease()),
            ("lease shorter", new.lease().is_some() && new.lease() < old.lease()),
        ] {
            self.tally.count_if(holds, case);
        }
        self.policies[index].set_quota(new);
        self.set_key_quotas(index);
        if new != old {
            self.changes[index] = Some(Changed { time: self.time, admitted: self.admitted.len() });
        }
    }
}

pub(super) fn key(entry: Entry) -> &'static str {
    ["alice", "bob"][entry.1]
}

/// Returns whether a trial has spent units of the key of another charge, which then waits for them too.
fn beside_a_trial(asks: &[Ask]) -> bool {
    let is_trial = |ask: &&Ask| ask.enforcement == Enforcement::Trial;
    let others = || asks.iter().filter(|ask| !is_trial(ask));
    asks.iter().filter(is_trial).any(|trial| others().any(|it| it.entry == trial.entry))
}

/// The wait that a denial names, of a charge that has to wait for `wait`. Under a concurrency limit it is an
/// estimate.
fn named_wait(wait: u64, quota: &Quota) -> u64 {
    if quota.is_concurrent() { wait.min(1_000_000) } else { wait }
}
