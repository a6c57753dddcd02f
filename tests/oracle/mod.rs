//! A naive oracle: it remembers every request, computes with big rationals, searches for waits
//! instead of deriving them, and shares no code with what it judges.

mod bucket;
mod counted;
mod log;
mod periods;

use std::collections::HashMap;

use num_bigint::BigInt;
use num_rational::BigRational;
use tollgate::{Algorithm, Quota, store::Verdict};

pub(crate) use self::counted::counted;

/// Which policy, which key.
pub(crate) type Slot = (usize, usize);

/// One line of a check. The quota is the one by which the store [counts](counted).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) slot: Slot,
    pub(crate) quota: Quota,
    pub(crate) cost: u64,
    pub(crate) most: u64,
    /// Half of what is free beyond the cost is left to others.
    pub(crate) lease: bool,
    pub(crate) shadow: bool,
}

/// What a check should come to.
#[derive(Debug, Clone)]
pub(crate) struct StoreReply {
    pub(crate) admitted: bool,
    pub(crate) findings: Vec<Finding>,
    pub(crate) paid: Vec<Paid>,
}

/// What one line of a check should come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    pub(crate) granted: u64,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) next_after: u64,
    pub(crate) reset_after: u64,
    pub(crate) retry_after: Option<u64>,
}

/// What one line of an admitted check has spent.
#[derive(Debug, Clone)]
pub(crate) struct Paid {
    pub(crate) ask: Ask,
    pub(crate) units: u64,
    trace: Trace,
}

impl Paid {
    pub(crate) fn is_charged(&self) -> bool {
        self.units > 0 || self.ask.cost == 0
    }
}

/// How a model recognises a request again.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    /// The time that the request was charged at, or its place in a log.
    time: u64,
    /// The debt just after it, if the model has one.
    debt: BigRational,
}

/// How one algorithm is meant to count.
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
pub(crate) struct Oracle {
    models: HashMap<Slot, Box<dyn Model>>,
    blocks: HashMap<Slot, Block>,
}

/// No unit of a key is free before `end`.
#[derive(Debug, Clone, Copy)]
struct Block {
    end: u64,
    duration: u64,
}

impl Oracle {
    pub(crate) fn check(&mut self, now: u64, asks: &[Ask]) -> StoreReply {
        let asks = sum(asks);
        asks.iter().for_each(|ask| self.heal(now, ask.slot));
        let binding = asks.iter().filter(|ask| !ask.shadow);
        if binding.clone().any(|ask| self.verdict(now, ask) != Verdict::Passed) {
            return self.peek(now, &asks);
        }
        let mut findings = vec![None; asks.len()];
        let mut paid = vec![None; asks.len()];
        for shadow in [false, true] {
            for (index, ask) in asks.iter().enumerate().filter(|(_, ask)| ask.shadow == shadow) {
                // A charge of this check may have stored a shorter window, from which the clock is
                // then set back.
                self.heal(now, ask.slot);
                let verdict = self.verdict(now, ask);
                let granted = if verdict == Verdict::Passed {
                    let free = self.free(now, ask.slot, &ask.quota);
                    let left = if ask.lease { (free - ask.cost).div_ceil(2) } else { 0 };
                    ask.most.min(free - left)
                } else {
                    0
                };
                paid[index] = Some(self.spend(now, ask, granted));
                let finding = self.standing(now, ask, verdict);
                findings[index] = Some(Finding { verdict, granted, ..finding });
            }
        }
        StoreReply {
            admitted: true,
            findings: findings.into_iter().flatten().collect(),
            paid: paid.into_iter().flatten().collect(),
        }
    }

    /// What a check would find, and nothing is spent.
    pub(crate) fn peek(&mut self, now: u64, asks: &[Ask]) -> StoreReply {
        let asks = sum(asks);
        asks.iter().for_each(|ask| self.heal(now, ask.slot));
        let findings = asks.iter().map(|ask| {
            let verdict = self.verdict(now, ask);
            self.standing(now, ask, verdict)
        });
        let findings: Vec<_> = findings.collect();
        let passed =
            |(ask, finding): (&Ask, &Finding)| ask.shadow || finding.verdict == Verdict::Passed;
        let admitted = asks.iter().zip(&findings).all(passed);
        StoreReply { admitted, findings, paid: Vec::new() }
    }

    /// Gives back what a line still weighs under the quota in force.
    pub(crate) fn refund(&mut self, now: u64, quota: &Quota, paid: &Paid) -> u64 {
        if paid.units == 0 {
            return 0;
        }
        self.heal(now, paid.ask.slot);
        let given = self.model(paid.ask.slot, quota).refund(quota, now, paid);
        assert!(given <= paid.units);
        given
    }

    /// Makes a line cost `units` under the quota in force; says how many were given back. A line that
    /// should have cost something and was not charged, as a shadow that did not pass, stays so.
    pub(crate) fn settle(&mut self, now: u64, quota: &Quota, paid: &Paid, units: u64) -> u64 {
        if paid.units > units {
            let back = Paid { units: paid.units - units, ..paid.clone() };
            return self.refund(now, quota, &back);
        }
        if paid.units == units || !paid.is_charged() {
            return 0;
        }
        self.heal(now, paid.ask.slot);
        self.spend(now, &Ask { quota: *quota, ..paid.ask }, units - paid.units);
        0
    }

    pub(crate) fn reset(&mut self, slot: Slot) {
        self.models.remove(&slot);
        self.blocks.remove(&slot);
    }

    /// Spends units whether they are free or not.
    pub(crate) fn penalize(&mut self, now: u64, ask: &Ask) -> (Finding, Paid) {
        self.heal(now, ask.slot);
        let paid = self.spend(now, ask, ask.cost);
        let finding = self.standing(now, ask, Verdict::Passed);
        (Finding { granted: ask.cost, ..finding }, paid)
    }

    /// The later end of two blocks counts.
    pub(crate) fn block(&mut self, now: u64, slot: Slot, duration: u64) {
        self.heal(now, slot);
        let new = Block { end: now + duration, duration };
        let block = self.blocks.entry(slot).or_insert(new);
        if new.end > block.end {
            *block = new;
        }
    }

    pub(crate) fn unblock(&mut self, now: u64, slot: Slot) {
        self.heal(now, slot);
        self.blocks.remove(&slot);
    }

    /// How long a key stays blocked, without a look at it.
    pub(crate) fn blocked_for(&self, now: u64, slot: Slot) -> u64 {
        let rest = |block: &Block| block.end.saturating_sub(now).min(block.duration);
        self.blocks.get(&slot).map_or(0, rest)
    }

    /// The shortest wait until `units` are free, by trying: `free` never shrinks with time.
    pub(crate) fn wait(&mut self, now: u64, slot: Slot, quota: &Quota, units: u64) -> u64 {
        let blocked = if units > 0 { self.blocked_for(now, slot) } else { 0 };
        self.wait_for_units(now, slot, quota, units).max(blocked)
    }

    fn wait_for_units(&mut self, now: u64, slot: Slot, quota: &Quota, units: u64) -> u64 {
        let model = self.model(slot, quota);
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

    /// What is free, without a look at the key that would heal it.
    pub(crate) fn free(&mut self, now: u64, slot: Slot, quota: &Quota) -> u64 {
        if self.blocked_for(now, slot) > 0 {
            return 0;
        }
        self.free_behind_block(now, slot, quota)
    }

    /// What the algorithm would leave free if the key were not blocked.
    pub(crate) fn free_behind_block(&mut self, now: u64, slot: Slot, quota: &Quota) -> u64 {
        let model = self.model(slot, quota);
        model.healed(now).as_ref().unwrap_or(model).free(quota, now)
    }

    /// Whether the last charge of a key is later than `now` by more than its window.
    pub(crate) fn is_ahead(&self, now: u64, slot: Slot) -> bool {
        self.models.get(&slot).is_some_and(|model| model.healed(now).is_some())
    }

    /// Looks at a key at a time from which the clock may have been set back.
    fn heal(&mut self, now: u64, slot: Slot) {
        if let Some(block) = self.blocks.get_mut(&slot) {
            block.end = block.end.min(now + block.duration);
        }
        if let Some(model) = self.models.get_mut(&slot)
            && let Some(healed) = model.healed(now)
        {
            *model = healed;
        }
    }

    fn verdict(&mut self, now: u64, ask: &Ask) -> Verdict {
        if ask.cost > ask.quota.capacity() {
            Verdict::OverCapacity
        } else if ask.cost <= self.free(now, ask.slot, &ask.quota) {
            Verdict::Passed
        } else {
            Verdict::Refused
        }
    }

    fn standing(&mut self, now: u64, ask: &Ask, verdict: Verdict) -> Finding {
        let capacity = ask.quota.capacity();
        let remaining = self.free(now, ask.slot, &ask.quota);
        let mut wait = |units| self.wait(now, ask.slot, &ask.quota, units);
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
        let mut trace = Trace { time: now, debt: rational(0) };
        if units > 0 {
            // A block that has ended is forgotten with the next charge.
            if self.blocked_for(now, ask.slot) == 0 {
                self.blocks.remove(&ask.slot);
            }
            trace = self.model(ask.slot, &ask.quota).spend(&ask.quota, now, units);
        }
        Paid { ask: *ask, units, trace }
    }

    fn model(&mut self, slot: Slot, quota: &Quota) -> &mut Box<dyn Model> {
        self.models.entry(slot).or_insert_with(|| match quota.algorithm() {
            Algorithm::SlidingLog | Algorithm::SlidingBuckets(_) => Box::<log::Log>::default(),
            Algorithm::SlidingCounter => Box::new(periods::Periods::new(true)),
            Algorithm::TokenBucket { .. } => Box::<bucket::Bucket>::default(),
            Algorithm::FixedWindow => Box::new(periods::Periods::new(false)),
            other => panic!("the oracle does not know {other:?}"),
        })
    }
}

/// Equal lines become one.
fn sum(asks: &[Ask]) -> Vec<Ask> {
    let mut summed: Vec<Ask> = Vec::new();
    for ask in asks {
        let equal = summed.iter_mut().find(|it| it.slot == ask.slot && it.shadow == ask.shadow);
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
