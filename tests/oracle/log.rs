//! The sliding log, and the sliding buckets, which are the same with times rounded up.

use tollgate::{Algorithm, Quota};

use super::{Model, Paid, Trace, micros, rational};

#[derive(Debug, Default)]
pub(super) struct Log {
    /// A request is known by its place in here.
    requests: Vec<Request>,
    changed: u64,
    window: u64,
}

/// Everything that was charged at one time.
#[derive(Debug)]
struct Request {
    time: i128,
    /// How much earlier it leaves than its time says, because a wider window is in force now.
    moved: i128,
    units: u64,
}

impl Request {
    fn leaves(&self, window: u64) -> i128 {
        self.time - self.moved + i128::from(window)
    }
}

impl Log {
    fn counting(&self, quota: &Quota, now: u64) -> impl Iterator<Item = &Request> {
        let window = micros(quota).min(self.window);
        let now = i128::from(now.max(self.changed));
        self.requests.iter().filter(move |request| now < request.leaves(window))
    }

    fn used(&self, quota: &Quota, now: u64) -> u64 {
        self.counting(quota, now).map(|request| request.units).sum()
    }

    /// What has been charged under a narrower window leaves when that had it leave.
    fn change(&mut self, quota: &Quota, now: u64) {
        let window = micros(quota);
        for request in &mut self.requests {
            request.moved += i128::from(window.saturating_sub(self.window));
        }
        self.changed = now.max(self.changed);
        self.window = window;
    }

    fn charged_at(&self, quota: &Quota) -> i128 {
        let Algorithm::SlidingBuckets(n) = quota.algorithm() else {
            return i128::from(self.changed);
        };
        let (n, window) = (u128::from(n), u128::from(micros(quota)));
        let bucket = u128::from(self.changed) * n / window;
        let rounded = ((bucket + 1) * window).div_ceil(n) as i128;
        let newest = self.counting(quota, self.changed).map(|it| it.time - it.moved).max();
        rounded.max(newest.unwrap_or(0))
    }
}

impl Model for Log {
    fn free(&self, quota: &Quota, now: u64) -> u64 {
        quota.limit().saturating_sub(self.used(quota, now))
    }

    fn moments(&self, quota: &Quota, _: u64) -> Vec<u64> {
        let window = micros(quota).min(self.window);
        self.requests.iter().filter_map(|it| u64::try_from(it.leaves(window)).ok()).collect()
    }

    fn spend(&mut self, quota: &Quota, now: u64, units: u64) -> Trace {
        self.change(quota, now);
        let units = units.min(u64::from(u32::MAX) - self.used(quota, now));
        let time = self.charged_at(quota);
        let same = self.requests.iter().position(|it| it.time - it.moved == time);
        let place = same.unwrap_or_else(|| {
            self.requests.push(Request { time, moved: 0, units: 0 });
            self.requests.len() - 1
        });
        self.requests[place].units += units;
        Trace { time: place as u64, debt: rational(0) }
    }

    fn refund(&mut self, quota: &Quota, now: u64, paid: &Paid) -> u64 {
        let window = micros(quota).min(self.window);
        let now = i128::from(now.max(self.changed));
        let request = &mut self.requests[paid.trace.time as usize];
        if now >= request.leaves(window) {
            return 0;
        }
        // A refund is no charge: neither the window nor the time of the key follows it.
        let given = request.units.min(paid.units);
        request.units -= given;
        given
    }
}
