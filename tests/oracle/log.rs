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

/// Everything that was charged in one bucket, or at one time.
#[derive(Debug)]
struct Request {
    /// When its bucket ends. Earlier than it did, if a wider window is in force now.
    time: i128,
    units: u64,
}

/// The end of the bucket that holds a time. Without buckets, the time itself.
fn end(quota: &Quota, time: u64) -> i128 {
    let Algorithm::SlidingBuckets(n) = quota.algorithm() else { return i128::from(time) };
    let (n, window) = (u128::from(n), u128::from(micros(quota)));
    let bucket = u128::from(time) * n / window;
    ((bucket + 1) * window).div_ceil(n) as i128
}

impl Log {
    /// When a request leaves: by the window under which it was made, or by the quota's, under which
    /// it was made no later than the last one.
    fn leaves(&self, request: &Request, quota: &Quota) -> i128 {
        let (old, new) = (i128::from(self.window), i128::from(micros(quota)));
        let leaves = request.time + old.min(new);
        if old == new { leaves } else { leaves.min(end(quota, self.changed) + new) }
    }

    fn used(&self, quota: &Quota, now: u64) -> u64 {
        let now = i128::from(now.max(self.changed));
        let counting = self.requests.iter().filter(|it| now < self.leaves(it, quota));
        counting.map(|request| request.units).sum()
    }
}

impl Model for Log {
    fn free(&self, quota: &Quota, now: u64) -> u64 {
        quota.limit().saturating_sub(self.used(quota, now))
    }

    fn moments(&self, quota: &Quota, _: u64) -> Vec<u64> {
        let leaves = self.requests.iter().map(|it| self.leaves(it, quota));
        leaves.filter_map(|time| u64::try_from(time).ok()).collect()
    }

    fn spend(&mut self, quota: &Quota, now: u64, units: u64) -> Trace {
        let window = micros(quota);
        let leaves: Vec<_> = self.requests.iter().map(|it| self.leaves(it, quota)).collect();
        for (request, leaves) in self.requests.iter_mut().zip(leaves) {
            request.time = leaves - i128::from(window);
        }
        self.changed = now.max(self.changed);
        self.window = window;
        let units = units.min(u64::from(u32::MAX) - self.used(quota, now));
        let now = i128::from(self.changed);
        let newest = self.requests.iter().map(|it| it.time).max();
        let time = newest.filter(|open| *open > now).unwrap_or(end(quota, self.changed));
        let same = self.requests.iter().position(|it| it.time == time);
        let place = same.unwrap_or_else(|| {
            self.requests.push(Request { time, units: 0 });
            self.requests.len() - 1
        });
        self.requests[place].units += units;
        Trace { time: place as u64, debt: rational(0) }
    }

    fn refund(&mut self, quota: &Quota, now: u64, paid: &Paid) -> u64 {
        let place = paid.trace.time as usize;
        if i128::from(now.max(self.changed)) >= self.leaves(&self.requests[place], quota) {
            return 0;
        }
        // A refund is no charge: neither the window nor the time of the key follows it.
        let request = &mut self.requests[place];
        let given = request.units.min(paid.units);
        request.units -= given;
        given
    }
}
