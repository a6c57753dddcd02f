//! A naive oracle: it remembers every request, computes with big rationals, searches for waits
//! instead of deriving them, and shares no code with what it judges.

mod bucket;
mod counted;
mod log;
mod periods;

use std::collections::{HashMap, HashSet};

use num_bigint::BigInt;
use num_rational::BigRational;
use plimsoll::{Algorithm, Quota, store::Verdict};

pub use self::counted::counted;

type NewModel = fn() -> Box<dyn Model>;

/// The model of each algorithm.
const MODELS: [(&str, NewModel); Algorithm::EACH.len()] = [
    ("sliding-log", || Box::<log::Log>::default()),
    ("sliding-buckets", || Box::<log::Log>::default()),
    ("sliding-counter", || Box::new(periods::Periods::new(true))),
    ("token-bucket", || Box::<bucket::Bucket>::default()),
    ("fixed-window", || Box::new(periods::Periods::new(false))),
];

/// A policy and a key, by their numbers.
pub type Entry = (usize, usize);

/// One charge of a check. The quota is the one by which the store [counts](counted).
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    pub entry: Entry,
    pub quota: Quota,
    pub cost: u64,
    pub most: u64,
    /// Leaves half of the units that are free beyond the cost to others.
    pub lease: bool,
    pub enforcement: Enforcement,
}

/// The effect of a charge in its check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    Live,
    Shadow,
    Trial,
}

/// The expected result of a check.
#[derive(Debug, Clone)]
pub struct ExpectedReply {
    pub admitted: bool,
    pub findings: Vec<Finding>,
    pub paid: Vec<Paid>,
}

/// The expected result of one charge of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub verdict: Verdict,
    pub granted: u64,
    pub limit: u64,
    pub remaining: u64,
    pub next_after: u64,
    pub reset_after: u64,
    pub retry_after: Option<u64>,
}

/// The units that one charge of an admitted check has spent, or a trial of any check.
#[derive(Debug, Clone)]
pub struct Paid {
    pub ask: Ask,
    pub units: u64,
    trace: Trace,
}

impl Paid {
    pub fn is_charged(&self) -> bool {
        self.units > 0 || self.ask.cost == 0
    }
}

/// The data by which a model finds a request again.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The time that the request was charged at, or its place in a log.
    time: u64,
    /// The debt just after it, if the model has one.
    debt: BigRational,
    /// The time of the change of the window that tells its period from the same one before, if the model has one.
    changed: u64,
}

/// The expected counting of one algorithm.
trait Model: std::fmt::Debug {
    /// Units free at a time, which may lie before the last change.
    fn free(&self, quota: &Quota, now: u64) -> u64;
    /// Times at which units may come back, among them those from which `units` are free.
    fn moments(&self, quota: &Quota, units: u64) -> Vec<u64>;
    fn spend(&mut self, quota: &Quota, now: u64, units: u64) -> Trace;
    fn refund(&mut self, quota: &Quota, now: u64, paid: &Paid) -> u64;
    /// The model with everything charged at `now`, if the last charge is later by more than its window.
    fn healed(&self, now: u64) -> Option<Box<dyn Model>>;
}

/// Every standing there is.
#[derive(Debug, Default)]
pub struct Oracle {
    models: HashMap<Entry, Box<dyn Model>>,
    blocks: HashMap<Entry, Block>,
    /// The keys that were healed. The units that such a key admitted before were admitted by another
    /// clock, so no bound holds for them and later units together.
    pub healed: HashSet<Entry>,
}

/// No unit of a key is free before `end`.
#[derive(Debug, Clone, Copy)]
struct Block {
    end: u64,
    duration: u64,
}

impl Oracle {
    pub fn check(&mut self, now: u64, asks: &[Ask]) -> ExpectedReply {
        let asks = sum(asks);
        asks.iter().for_each(|ask| self.heal(now, ask.entry));
        let is_live = |ask: &&Ask| ask.enforcement == Enforcement::Live;
        let admitted =
            asks.iter().filter(is_live).all(|ask| self.verdict(now, ask) == Verdict::Passed);
        let mut findings = vec![None; asks.len()];
        let mut paid = vec![None; asks.len()];
        for live in [true, false] {
            for (index, ask) in asks.iter().enumerate().filter(|(_, ask)| is_live(ask) == live) {
                // A charge of this check may have stored a shorter window, from which the clock is
                // then set back.
                self.heal(now, ask.entry);
                let verdict = self.verdict(now, ask);
                // The work of a denied check is never in flight.
                let is_trial = ask.enforcement == Enforcement::Trial && !ask.quota.is_concurrent();
                let counts = admitted || is_trial;
                let granted = if counts && verdict == Verdict::Passed {
                    let free = self.free(now, ask.entry, &ask.quota);
                    let left = if ask.lease { (free - ask.cost).div_ceil(2) } else { 0 };
                    ask.most.min(free - left)
                } else {
                    0
                };
                if counts {
                    paid[index] = Some(self.spend(now, ask, granted));
                }
                let finding = self.standing(now, ask, verdict);
                findings[index] = Some(Finding { verdict, granted, ..finding });
            }
        }
        ExpectedReply {
            admitted,
            findings: findings.into_iter().flatten().collect(),
            paid: paid.into_iter().flatten().collect(),
        }
    }

    /// Returns the result that a check would have, and spends nothing.
    pub fn peek(&mut self, now: u64, asks: &[Ask]) -> ExpectedReply {
        let asks = sum(asks);
        asks.iter().for_each(|ask| self.heal(now, ask.entry));
        let findings = asks.iter().map(|ask| {
            let verdict = self.verdict(now, ask);
            self.standing(now, ask, verdict)
        });
        let findings: Vec<_> = findings.collect();
        let is_live = |ask: &Ask| ask.enforcement == Enforcement::Live;
        let passed =
            |(ask, finding): (&Ask, &Finding)| !is_live(ask) || finding.verdict == Verdict::Passed;
        let admitted = asks.iter().zip(&findings).all(passed);
        ExpectedReply { admitted, findings, paid: Vec::new() }
    }

    /// Refunds the units of a charge that still count under the quota in force.
    pub fn refund(&mut self, now: u64, quota: &Quota, paid: &Paid) -> u64 {
        if paid.units == 0 {
            return 0;
        }
        self.heal(now, paid.ask.entry);
        let given = self.model(paid.ask.entry, quota).refund(quota, now, paid);
        assert!(given <= paid.units);
        given
    }

    /// Makes a charge cost `units` under the quota in force. Returns the number of units refunded. A charge
    /// with a cost that was not made, such as a shadow or a trial that did not pass, stays so.
    pub fn settle(&mut self, now: u64, quota: &Quota, paid: &Paid, units: u64) -> u64 {
        if paid.units > units {
            let back = Paid { units: paid.units - units, ..paid.clone() };
            return self.refund(now, quota, &back);
        }
        if paid.units == units || !paid.is_charged() {
            return 0;
        }
        self.heal(now, paid.ask.entry);
        self.spend(now, &Ask { quota: *quota, ..paid.ask }, units - paid.units);
        0
    }

    pub fn reset(&mut self, entry: Entry) {
        self.models.remove(&entry);
        self.blocks.remove(&entry);
    }

    /// Spends units whether they are free or not.
    pub fn penalize(&mut self, now: u64, ask: &Ask) -> (Finding, Paid) {
        self.heal(now, ask.entry);
        let paid = self.spend(now, ask, ask.cost);
        let finding = self.standing(now, ask, Verdict::Passed);
        (Finding { granted: ask.cost, ..finding }, paid)
    }

    /// The later end of two blocks counts.
    pub fn block(&mut self, now: u64, entry: Entry, duration: u64) {
        self.heal(now, entry);
        let new = Block { end: now + duration, duration };
        let block = self.blocks.entry(entry).or_insert(new);
        if new.end > block.end {
            *block = new;
        }
    }

    pub fn unblock(&mut self, now: u64, entry: Entry) {
        self.heal(now, entry);
        self.blocks.remove(&entry);
    }

    /// Returns the time for which a key stays blocked. Does not heal the key.
    pub fn blocked_for(&self, now: u64, entry: Entry) -> u64 {
        let rest = |block: &Block| block.end.saturating_sub(now).min(block.duration);
        self.blocks.get(&entry).map_or(0, rest)
    }

    /// The shortest wait until `units` are free, by trying: `free` never shrinks with time.
    pub fn wait(&mut self, now: u64, entry: Entry, quota: &Quota, units: u64) -> u64 {
        let blocked = if units > 0 { self.blocked_for(now, entry) } else { 0 };
        self.wait_for_units(now, entry, quota, units).max(blocked)
    }

    fn wait_for_units(&mut self, now: u64, entry: Entry, quota: &Quota, units: u64) -> u64 {
        let model = self.model(entry, quota);
        let enough = |time: u64| model.free(quota, time) >= units;
        if enough(now) {
            return 0;
        }
        let mut moments = model.moments(quota, units);
        moments.retain(|moment| *moment > now);
        moments.sort_unstable();
        let mut short = now;
        for moment in moments {
            if !enough(moment) {
                short = moment;
                continue;
            }
            let mut high = moment;
            let mut gap = 1;
            // Most moments are exact; else search before them.
            while high - short > 1 {
                let middle = if gap == 1 { high - 1 } else { short + (high - short) / 2 };
                gap = 2;
                if enough(middle) { high = middle } else { short = middle }
            }
            return high - now;
        }
        panic!("{units} units are never free under {quota} in {model:?}");
    }

    /// Returns the free units of a key. Does not heal the key.
    pub fn free(&mut self, now: u64, entry: Entry, quota: &Quota) -> u64 {
        if self.blocked_for(now, entry) > 0 {
            return 0;
        }
        self.free_behind_block(now, entry, quota)
    }

    /// Returns the units that would be free if the key were not blocked.
    pub fn free_behind_block(&mut self, now: u64, entry: Entry, quota: &Quota) -> u64 {
        let model = self.model(entry, quota);
        model.healed(now).as_ref().unwrap_or(model).free(quota, now)
    }

    /// Heals a key: if the clock was set back by more than a window, its charges and its block move to
    /// `now`.
    fn heal(&mut self, now: u64, entry: Entry) {
        if let Some(block) = self.blocks.get_mut(&entry) {
            block.end = block.end.min(now + block.duration);
        }
        if let Some(model) = self.models.get_mut(&entry)
            && let Some(healed) = model.healed(now)
        {
            *model = healed;
            self.healed.insert(entry);
        }
    }

    fn verdict(&mut self, now: u64, ask: &Ask) -> Verdict {
        if ask.cost > ask.quota.capacity() {
            Verdict::OverCapacity
        } else if ask.cost <= self.free(now, ask.entry, &ask.quota) {
            Verdict::Passed
        } else {
            Verdict::Refused
        }
    }

    fn standing(&mut self, now: u64, ask: &Ask, verdict: Verdict) -> Finding {
        let capacity = ask.quota.capacity();
        let remaining = self.free(now, ask.entry, &ask.quota);
        let mut wait = |units| self.wait(now, ask.entry, &ask.quota, units);
        Finding {
            verdict,
            granted: 0,
            limit: capacity,
            remaining,
            next_after: wait(capacity.min(remaining + 1)),
            reset_after: wait(capacity),
            retry_after: (verdict == Verdict::Refused).then(|| wait(ask.cost)),
        }
    }

    fn spend(&mut self, now: u64, ask: &Ask, units: u64) -> Paid {
        let mut trace = Trace { time: now, debt: rational(0), changed: 0 };
        if units > 0 {
            // A block that has ended is forgotten with the next charge.
            if self.blocked_for(now, ask.entry) == 0 {
                self.blocks.remove(&ask.entry);
            }
            trace = self.model(ask.entry, &ask.quota).spend(&ask.quota, now, units);
        }
        Paid { ask: *ask, units, trace }
    }

    fn model(&mut self, entry: Entry, quota: &Quota) -> &mut Box<dyn Model> {
        let name = quota.algorithm().name();
        self.models.entry(entry).or_insert_with(|| {
            let model = MODELS.iter().find(|(of, _)| *of == name);
            model.unwrap_or_else(|| panic!("testing/src/oracle/mod.rs has no model of {name}")).1()
        })
    }
}

/// Adds equal charges up.
fn sum(asks: &[Ask]) -> Vec<Ask> {
    let mut summed: Vec<Ask> = Vec::new();
    for ask in asks {
        let equal =
            summed.iter_mut().find(|it| it.entry == ask.entry && it.enforcement == ask.enforcement);
        if let Some(equal) = equal {
            equal.cost = equal.cost.saturating_add(ask.cost);
            equal.most = equal.most.saturating_add(ask.most);
            equal.lease |= ask.lease;
        } else {
            summed.push(*ask);
        }
    }
    summed
}

fn micros(quota: &Quota) -> u64 {
    u64::try_from(quota.window().as_micros()).expect("a window fits")
}

fn rational(number: u64) -> BigRational {
    BigRational::from_integer(BigInt::from(number))
}

/// A rational that is known to be a whole number of at least 0.
fn whole(number: &BigRational) -> u64 {
    assert!(number.is_integer());
    u64::try_from(number.numer().clone()).expect("not negative and fits")
}
