//! Plays a history against a limiter and the oracle side by side.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tollgate::{Algorithm, Charge, Decision, Policy, Quota, Reservation, store::Verdict};

use super::{
    history::{Change, Cost, History, Line, Move, Part, Step},
    oracle::{Ask, Finding, Oracle, Paid, Ruling, Slot},
    support::{Fixture, Tally, micros, most_in_any_window, now},
};

/// Admitted units, less what was given back: what the bounds speak of.
#[derive(Debug)]
struct Admitted {
    slot: Slot,
    time: u64,
    units: u64,
}

/// What can be refunded or settled: each line with its place in `admitted`.
type Held = (Reservation, Vec<(Paid, usize)>);

struct Player<'a> {
    fixture: &'a Fixture,
    tally: &'a Tally,
    history: &'a History,
    policies: Vec<Policy>,
    /// Whether the policy has had one quota only.
    steady: Vec<bool>,
    oracle: Oracle,
    time: u64,
    latest: u64,
    last_wait: u64,
    /// When the last denial said that its check would be admitted.
    due: u64,
    held: Vec<Held>,
    admitted: Vec<Admitted>,
    /// A key is judged no earlier than it was last changed.
    changed: HashMap<Slot, u64>,
    /// When it was last charged or given back to.
    written: HashMap<Slot, u64>,
    reset: HashSet<Slot>,
}

pub(crate) fn run(fixture: &Fixture, history: &History, tally: &Tally) {
    let names = ["first", "second", "third"];
    let policies = history.quotas.iter().zip(names);
    let policies: Vec<_> =
        policies.map(|(quota, name)| Policy::new(name, *quota).expect("valid")).collect();
    let mut player = Player {
        fixture,
        tally,
        history,
        steady: vec![true; policies.len()],
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
    for quota in &history.quotas {
        let product = u128::from(quota.limit()) * quota.window().as_micros();
        tally.count_if(product > 1 << 53, "limit x window beyond 2^53");
        let divides = micros(quota.window()).is_multiple_of(quota.limit());
        tally.count_if(!divides, "rate that does not divide");
    }
    for step in &history.steps {
        player.step(step);
    }
    player.bounds();
}

impl Player<'_> {
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
                let slot = (line.policy % self.policies.len(), line.key);
                let charge = self.policies[slot.0].charge(key(slot), 1);
                now(self.fixture.limiter.reset(charge)).expect("the store answers");
                self.oracle.reset(slot);
                self.reset.insert(slot);
                // What is forgotten is not given back as well.
                let other = |(paid, _): &(Paid, usize)| paid.ask.slot != slot;
                self.held.retain(|(_, lines)| lines.iter().all(other));
                self.tally.count("reset");
            }
            Step::Change { policy, change } => self.change(*policy, *change),
        }
    }

    /// Whether a key that has everything back now was changed after `time`, or would not have it
    /// then. A store may have dropped such a key, and with it what it knew of later times.
    fn forgotten(&mut self, time: u64) -> bool {
        let slots = (0..self.policies.len()).flat_map(|policy| [(policy, 0), (policy, 1)]);
        slots.into_iter().any(|slot| {
            let quota = self.policies[slot.0].quota();
            let mut full = |time| self.oracle.free(time, slot, &quota) == quota.capacity();
            let later = self.written.get(&slot).is_some_and(|written| *written > time);
            full(self.time) && (later || !full(time))
        })
    }

    fn travel(&mut self, by: Move) {
        let window =
            |policy: usize| micros(self.policies[policy % self.policies.len()].quota().window());
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

    fn asks(&mut self, lines: &[Line]) -> Vec<Ask> {
        let lines = lines.iter().map(|line| {
            let slot = (line.policy % self.policies.len(), line.key);
            let quota = self.policies[slot.0].quota();
            let free = self.oracle.free(self.time, slot, &quota);
            let units = |cost| match cost {
                Cost::Units(units) => units,
                Cost::Part(part) => part.of(quota.capacity()),
                Cost::Free(more) => free.saturating_add_signed(more),
                Cost::Over(by) => quota.capacity().saturating_add(by),
            };
            let cost = units(line.cost);
            let most = line.most.map_or(cost, units).max(cost);
            Ask { slot, quota, cost, most, shadow: line.shadow }
        });
        lines.collect()
    }

    fn charges(&self, asks: &[Ask]) -> Vec<Charge<'static>> {
        let charges = asks.iter().map(|ask| {
            let charge = self.policies[ask.slot.0].charge(key(ask.slot), ask.cost);
            let charge = charge.up_to(ask.most).into_owned();
            if ask.shadow { charge.shadow() } else { charge }
        });
        charges.collect()
    }

    fn peek(&self, asks: &[Ask]) -> Decision<'static> {
        now(self.fixture.limiter.peek(self.charges(asks))).expect("the store answers")
    }

    fn check(&mut self, asks: &[Ask], keep: bool) {
        let expected = self.oracle.check(self.time, asks);
        let decision = now(self.fixture.limiter.check(self.charges(asks)));
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
                let wait = denied.retry_after().map(micros);
                let longest = expected.findings.iter().zip(denied.outcomes());
                let binding = longest.filter(|(_, outcome)| !outcome.charge().is_shadow());
                let waits = binding.map(|(finding, _)| match finding.verdict {
                    Verdict::OverCapacity => None,
                    _ => Some(finding.retry_after.unwrap_or(0)),
                });
                let expected: Option<Vec<u64>> = waits.collect();
                assert_eq!(wait, expected.and_then(|waits| waits.into_iter().max()));
                assert_eq!(denied.is_over_capacity(), wait.is_none());
                let binding = denied.binding().expect("a denial has a reason");
                assert_eq!(binding.standing().retry_after().map(micros), wait);
                if let Some(wait) = wait {
                    self.exact(asks, wait);
                }
            }
        }
    }

    /// After the wait the check is admitted, and a microsecond before it is not.
    fn exact(&mut self, asks: &[Ask], wait: u64) {
        assert!(wait > 0);
        self.last_wait = wait;
        self.due = self.time + wait;
        if self.time + wait < 1 << 53 {
            self.fixture.set(self.time + wait - 1);
            assert!(!self.peek(asks).is_allowed(), "admitted before {wait} us have passed");
            self.fixture.set(self.time + wait);
            assert!(self.peek(asks).is_allowed(), "not admitted after {wait} us");
            self.fixture.set(self.time);
            self.tally.count("exact wait proved");
        }
    }

    fn compare(&self, decision: &Decision<'_>, expected: &Ruling) {
        let found = decision.outcomes().iter().map(|outcome| {
            let standing = outcome.standing();
            Finding {
                verdict: outcome.verdict(),
                granted: outcome.granted(),
                limit: standing.limit(),
                remaining: standing.remaining(),
                next_after: micros(standing.next_after()),
                reset_after: micros(standing.reset_after()),
                retry_after: standing.retry_after().map(micros),
            }
        });
        let found: Vec<_> = found.collect();
        assert_eq!(found, expected.findings, "at {} (left: limiter, right: oracle)", self.time);
        assert_eq!(decision.is_allowed(), expected.admitted);
        assert_eq!(decision.time().as_micros(), self.time);
    }

    fn admit(&mut self, paid: Vec<Paid>) -> Vec<(Paid, usize)> {
        let mut lines = Vec::new();
        for paid in paid {
            let (slot, units) = (paid.ask.slot, paid.units);
            let time = self.charged(slot, units);
            lines.push((paid, self.admitted.len()));
            self.admitted.push(Admitted { slot, time, units });
        }
        lines
    }

    /// A charge; the time at which the key was judged.
    fn charged(&mut self, slot: Slot, units: u64) -> u64 {
        let changed = self.changed.entry(slot).or_default();
        if units > 0 {
            *changed = self.time.max(*changed);
        }
        let judged = *changed;
        self.write(slot, units);
        judged
    }

    fn given_back(&mut self, slot: Slot, units: u64) {
        // A bucket pays debts from then on; the others are judged by charges alone.
        if matches!(self.policies[slot.0].quota().counted_by(), Algorithm::TokenBucket { .. }) {
            self.charged(slot, units);
        }
        self.write(slot, units);
    }

    fn write(&mut self, slot: Slot, units: u64) {
        let written = self.written.entry(slot).or_default();
        if units > 0 {
            *written = self.time.max(*written);
        }
    }

    fn take_held(&mut self, which: usize) -> Option<Held> {
        let count = self.held.len();
        (count > 0).then(|| self.held.swap_remove(which % count))
    }

    fn refund(&mut self, which: usize) {
        let Some((held, lines)) = self.take_held(which) else { return };
        let mut expected = 0;
        for (paid, index) in &lines {
            let quota = self.policies[paid.ask.slot.0].quota();
            let given = self.oracle.refund(self.time, &quota, paid);
            self.tally.count_if(given == 0 && paid.units > 0, "refund of nothing");
            self.tally.count_if(given > 0 && given == paid.units, "refund in full");
            self.tally.count_if(given > 0 && given < paid.units, "refund in part");
            self.admitted[*index].units -= given;
            self.given_back(paid.ask.slot, given);
            expected += given;
        }
        assert_eq!(now(held.refund()).expect("the store answers"), expected, "units given back");
    }

    fn settle(&mut self, which: usize, factor: Part) {
        let Some((held, lines)) = self.take_held(which) else { return };
        let units = factor.of(lines.iter().map(|(paid, _)| paid.units).max().unwrap_or(0).max(2));
        // What comes back does so before anything is charged.
        for up in [false, true] {
            for (paid, index) in lines.iter().filter(|(paid, _)| (paid.units < units) == up) {
                let slot = paid.ask.slot;
                let quota = self.policies[slot.0].quota();
                let free = self.oracle.free(self.time, slot, &quota);
                let given = self.oracle.settle(self.time, &quota, paid, units);
                self.admitted[*index].units -= given;
                if up {
                    self.charged(slot, units);
                } else {
                    self.given_back(slot, given);
                }
                self.tally.count(if up { "settle upward" } else { "settle downward" });
                let beyond = up && units - paid.units > free;
                self.tally.count_if(beyond, "settle upward beyond the limit");
            }
        }
        now(held.settle(units)).expect("the store answers");
    }

    fn change(&mut self, policy: usize, change: Change) {
        let index = policy % self.policies.len();
        let old = self.policies[index].quota();
        let (limit, window, counted_by) = (old.limit(), old.window(), old.counted_by());
        let new = match (change, counted_by) {
            (Change::Limit(part), _) => {
                Quota::with_algorithm(part.of(limit).max(1), window, counted_by)
            }
            (Change::Window(part), _) => {
                let window = Duration::from_micros(part.of(micros(window)));
                Quota::with_algorithm(limit, window, counted_by)
            }
            (Change::Burst(part), Algorithm::TokenBucket { burst }) => {
                let burst = part.of(burst).max(1);
                Quota::with_algorithm(limit, window, Algorithm::TokenBucket { burst })
            }
            (Change::Burst(_) | Change::Back, _) => Ok(self.history.quotas[index]),
        };
        let Ok(new) = new else { return };
        let burst_lowered = new.limit() == old.limit() && new.capacity() < old.capacity();
        self.tally.count_if(burst_lowered, "burst lowered");
        let spent = old.capacity() - self.oracle.free(self.time, (index, 0), &old);
        self.tally.count_if(new.limit() > old.limit(), "limit raised");
        let below = new.limit() < old.limit() && new.limit() < spent;
        self.tally.count_if(below, "limit lowered below what is spent");
        self.tally.count_if(new.window() > old.window(), "window grown");
        self.tally.count_if(new.window() < old.window(), "window shrunk");
        self.policies[index].set_quota(new);
        self.steady[index] &= new == old;
    }

    fn bounds(&self) {
        for (index, quota) in self.history.quotas.iter().enumerate().filter(|it| self.steady[it.0])
        {
            for key in (0..2).filter(|key| !self.reset.contains(&(index, *key))) {
                let mine = self.admitted.iter().filter(|it| it.slot == (index, key));
                let spent: Vec<_> = mine.map(|it| (it.time, it.units)).collect();
                let most = most_in_any_window(&spent, micros(quota.window()));
                let limit = u128::from(quota.limit());
                let bound = match quota.counted_by() {
                    Algorithm::SlidingCounter => 2 * limit - 1,
                    Algorithm::TokenBucket { burst } => u128::from(burst) + limit,
                    Algorithm::FixedWindow => 2 * limit,
                    _ => limit,
                };
                assert!(most <= bound, "{most} units in a window of {quota}: {spent:?}");
                self.tally.count_if(!spent.is_empty(), "bound proved");
            }
        }
    }

    fn count(&self, asks: &[Ask], ruling: &Ruling) {
        let tally = self.tally;
        tally.count(if ruling.admitted { "admitted" } else { "denied" });
        let mut findings = ruling.findings.iter();
        let over = findings.clone().any(|it| it.verdict == Verdict::OverCapacity);
        tally.count_if(over, "over capacity");
        tally.count_if(asks.iter().any(|ask| ask.cost == 0), "cost of 0");
        tally.count_if(asks.len() > 1, "several charges");
        tally.count_if(ruling.findings.len() < asks.len(), "the same policy and key twice");
        let pairs = asks.iter().any(|one| {
            asks.iter().any(|other| one.slot == other.slot && one.shadow != other.shadow)
        });
        tally.count_if(pairs && ruling.admitted, "shadow beside its own charge");
        let refused = findings.any(|it| it.verdict == Verdict::Refused);
        tally.count_if(refused && ruling.admitted, "shadow refused, check admitted");
        let more = ruling.paid.iter().any(|paid| paid.units > paid.ask.cost);
        tally.count_if(more, "granted more than the cost");
        let waited = ruling.admitted && self.time == self.due;
        tally.count_if(waited, "waited exactly, then admitted");
    }
}

fn key(slot: Slot) -> &'static str {
    ["alice", "bob"][slot.1]
}
