//! The fixed window and the sliding counter: every request belongs to the period of the window in
//! which it was made, and leaves with it.

use std::collections::BTreeMap;

use plimsoll::Quota;

use super::{Model, Paid, Trace, micros, rational, whole};

#[derive(Debug, Clone)]
pub(super) struct Periods {
    /// True if a period fades out over the next one, false if it ends at once.
    sliding: bool,
    requests: Vec<Request>,
    /// The time and the window of the last charge.
    last: u64,
    window: u64,
    /// The number of changes of the window. The counters of a window begin again when it comes back.
    changes: u64,
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
    /// The rule of its period, under the window at that time.
    own: Rule,
    /// The rule of a later window under which the units are gone first.
    later: Option<Rule>,
}

impl Request {
    fn weight(&self, units: u64, now: u64) -> u64 {
        let own = self.own.weight(units, now);
        self.later.map_or(own, |later| own.min(later.weight(units, now)))
    }
}

impl Periods {
    pub(super) fn new(sliding: bool) -> Self {
        Self { sliding, requests: Vec::new(), last: 0, window: 0, changes: 0 }
    }

    /// A quota with the window of the last charge.
    fn same(&self) -> Option<Quota> {
        Quota::new(1, std::time::Duration::from_micros(self.window)).ok()
    }

    /// The rule of the period of `window` that holds `time`.
    fn rule(&self, time: u64, window: u64) -> Rule {
        let hold = time - time % window + window;
        Rule { hold, zero: if self.sliding { hold + window } else { hold } }
    }

    /// The requests as a quota sees them.
    fn under(&self, quota: &Quota) -> Vec<Request> {
        let mut requests = self.requests.clone();
        let window = micros(quota);
        if window == self.window {
            return requests;
        }
        for request in &mut requests {
            let at_last = self.rule(self.last, window);
            request.later = Some(match request.later {
                Some(later) if later.zero <= at_last.zero => later,
                Some(_) => at_last,
                None => self.rule(self.last.min(request.own.hold - 1), window),
            });
        }
        requests
    }

    /// Requests that leave together are rounded together.
    fn weight(&self, quota: &Quota, now: u64) -> u64 {
        let now = now.max(self.last);
        let mut groups = BTreeMap::<_, (Request, u64)>::new();
        for request in self.under(quota) {
            let group = groups.entry((request.own, request.later)).or_insert((request, 0));
            group.1 += request.units;
        }
        groups.values().map(|(request, units)| request.weight(*units, now)).sum()
    }
}

impl Model for Periods {
    fn free(&self, quota: &Quota, now: u64) -> u64 {
        quota.limit().saturating_sub(self.weight(quota, now))
    }

    fn moments(&self, quota: &Quota, _: u64) -> Vec<u64> {
        let rules = self.under(quota).into_iter().flat_map(|it| [Some(it.own), it.later]);
        let mut moments: Vec<u64> = rules.flatten().flat_map(|it| [it.hold, it.zero]).collect();
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    fn spend(&mut self, quota: &Quota, now: u64, units: u64) -> Trace {
        self.requests = self.under(quota);
        self.last = now.max(self.last);
        self.changes += u64::from(self.window != micros(quota));
        self.window = micros(quota);
        let own = self.rule(self.last, self.window);
        let same = self.requests.iter().filter(|it| it.own == own && it.later.is_none());
        let units = units.min((1 << 52) - same.map(|it| it.units).sum::<u64>());
        self.requests.push(Request { units, own, later: None });
        self.requests.retain(|it| it.weight(it.units.max(1), self.last) > 0);
        Trace { time: self.last, debt: rational(0), changes: self.changes }
    }

    /// The units join the period that holds `now`.
    fn healed(&self, now: u64) -> Option<Box<dyn Model>> {
        if self.last <= now + self.window {
            return None;
        }
        let mut healed = self.clone();
        let quota = self.same()?;
        let units = self.weight(&quota, self.last);
        let own = self.rule(now, self.window);
        healed.requests = vec![Request { units, own, later: None }];
        healed.last = now;
        Some(Box::new(healed))
    }

    /// Goes to what the counters hold of the period, else to the oldest that is carried of it.
    fn refund(&mut self, quota: &Quota, now: u64, paid: &Paid) -> u64 {
        let now = now.max(self.last);
        let window = micros(&paid.ask.quota);
        let own = self.rule(paid.trace.time, window);
        // The counter has the requests since the last change of the window. Those of another window, or from
        // before it changed and changed back, can have a period that ends at the same time.
        let is_counted = window == self.window && paid.trace.changes == self.changes;
        let is_its = |it: &Request| it.own == own && (it.later.is_some() || is_counted);
        let counts = |it: &Request| is_its(it) && it.weight(it.units, now) > 0;
        if !self.under(quota).iter().any(counts) {
            return 0;
        }
        let counted = |it: &&Request| is_its(it) && it.units > 0 && it.later.is_none();
        let counter = self.requests.iter().find(counted);
        let Some(first) = counter.or_else(|| self.requests.iter().find(|it| counts(it))) else {
            return 0;
        };
        let later = first.later;
        let mut left = paid.units;
        for request in self.requests.iter_mut().filter(|it| it.own == own && it.later == later) {
            let units = left.min(request.units);
            request.units -= units;
            left -= units;
        }
        paid.units - left
    }
}
