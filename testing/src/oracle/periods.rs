//! The fixed window and the sliding counter: every request belongs to the period of the window in
//! which it was made, and leaves with it.

use std::collections::BTreeMap;

use plimsoll::Quota;

use super::{Model, Paid, Trace, micros, rational, whole};

/// The units that a counter holds at most.
const MOST_UNITS: u64 = 1 << 52;

#[derive(Debug, Clone)]
pub(super) struct Periods {
    /// True if a period fades out over the next one, false if it ends at once.
    sliding: bool,
    requests: Vec<Request>,
    /// The time and the window of the last charge.
    last: u64,
    window: u64,
    /// The time of the last change of the window, 0 before the first and after the clock was set back. A change
    /// in the microsecond of another one is a microsecond later.
    changed: u64,
}

/// From `hold` on a period fades out, at `zero` it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    hold: u64,
    zero: u64,
}

impl Rule {
    fn weight(self, units: u64, now: u64) -> u64 {
        if now <= self.hold && now < self.zero {
            return units;
        }
        if now >= self.zero {
            return 0;
        }
        let share = rational(self.zero - now) / rational(self.zero - self.hold);
        whole(&(rational(units) * share).ceil())
    }
}

#[derive(Debug, Clone, Copy)]
struct Request {
    units: u64,
    /// The rule by which the units leave: the rule of the period in which they were charged.
    rule: Rule,
    /// True for the units that are left of earlier windows. They belong to no charge any more.
    is_carried: bool,
}

impl Periods {
    pub(super) fn new(sliding: bool) -> Self {
        Self { sliding, requests: Vec::new(), last: 0, window: 0, changed: 0 }
    }

    /// The rule of the period of `window` that holds `time`.
    fn rule(&self, time: u64, window: u64) -> Rule {
        let hold = time - time % window + window;
        Rule { hold, zero: if self.sliding { hold + window } else { hold } }
    }

    /// The time of the last change of the window, if it lies in the period of this rule or after it, else 0.
    fn changed_since(&self, rule: Rule) -> u64 {
        if self.changed >= rule.hold - self.window { self.changed } else { 0 }
    }

    /// The requests as a quota sees them. Under another window than before, all units that counted at the
    /// last charge are one request of that time, and the window that lets it go first is its own.
    fn under(&self, quota: &Quota) -> Vec<Request> {
        let window = micros(quota);
        if window == self.window || self.window == 0 {
            return self.requests.clone();
        }
        let rules = [self.window, window].map(|window| self.rule(self.last, window));
        let rule = if rules[1].zero < rules[0].zero { rules[1] } else { rules[0] };
        let units = weight(&self.requests, self.last).min(MOST_UNITS);
        vec![Request { units, rule, is_carried: true }]
    }
}

/// Requests that leave together are rounded together.
fn weight(requests: &[Request], now: u64) -> u64 {
    let mut groups = BTreeMap::<_, u64>::new();
    for request in requests {
        *groups.entry((request.rule, request.is_carried)).or_default() += request.units;
    }
    groups.into_iter().map(|((rule, _), units)| rule.weight(units, now)).sum()
}

impl Model for Periods {
    fn free(&self, quota: &Quota, now: u64) -> u64 {
        quota.limit().saturating_sub(weight(&self.under(quota), now.max(self.last)))
    }

    fn moments(&self, quota: &Quota, _: u64) -> Vec<u64> {
        let rules = self.under(quota).into_iter().map(|it| it.rule);
        let mut moments: Vec<u64> = rules.flat_map(|rule| [rule.hold, rule.zero]).collect();
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    fn spend(&mut self, quota: &Quota, now: u64, units: u64) -> Trace {
        self.requests = self.under(quota);
        self.last = now.max(self.last);
        if ![0, micros(quota)].contains(&self.window) {
            self.changed = self.last.max(self.changed + 1);
        }
        self.window = micros(quota);
        let rule = self.rule(self.last, self.window);
        let same = self.requests.iter().filter(|it| it.rule == rule && !it.is_carried);
        let units = units.min(MOST_UNITS - same.map(|it| it.units).sum::<u64>());
        self.requests.push(Request { units, rule, is_carried: false });
        self.requests.retain(|it| it.rule.zero > self.last);
        Trace { time: self.last, debt: rational(0), changed: self.changed_since(rule) }
    }

    /// The units join the period that holds `now`. Whether the window has changed before is forgotten.
    fn healed(&self, now: u64) -> Option<Box<dyn Model>> {
        if self.last <= now + self.window {
            return None;
        }
        let mut healed = self.clone();
        let units = weight(&self.requests, self.last).min(MOST_UNITS);
        let rule = self.rule(now, self.window);
        healed.requests = vec![Request { units, rule, is_carried: false }];
        healed.last = now;
        healed.changed = 0;
        Some(Box::new(healed))
    }

    /// Goes to what is left of the period of the charge. A charge from before a change of the window gives
    /// back nothing, also if the window changes back. The time of a change identifies it.
    fn refund(&mut self, quota: &Quota, now: u64, paid: &Paid) -> u64 {
        let now = now.max(self.last);
        let window = micros(&paid.ask.quota);
        let rule = self.rule(paid.trace.time, window);
        let is_of_this_window = window == micros(quota)
            && window == self.window
            && paid.trace.changed == self.changed_since(rule);
        if !is_of_this_window || now >= rule.zero {
            return 0;
        }
        let mut left = paid.units;
        for request in self.requests.iter_mut().filter(|it| it.rule == rule && !it.is_carried) {
            let units = left.min(request.units);
            request.units -= units;
            left -= units;
        }
        paid.units - left
    }
}
