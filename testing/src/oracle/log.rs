//! The sliding log, and the sliding buckets, which are the same with times rounded up.

use plimsoll::{Algorithm, Quota};

use super::{Model, Paid, Trace, micros, rational};

#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    /// A request is known by its place in here.
    requests: Vec<Request>,
    changed: u64,
    window: u64,
}

/// Everything that was charged in one bucket, or at one time.
#[derive(Debug, Clone)]
struct Request {
    /// The end of the request's bucket.
    time: i128,
    /// The time for which the request counts: the shortest window since it was charged.
    life: i128,
    units: u64,
}

/// The end of the bucket that holds a time, in a log of this many requests. Without buckets, the time
/// itself.
fn end(quota: &Quota, requests: usize, time: u64) -> i128 {
    let n = match quota.algorithm() {
        Algorithm::SlidingBuckets(n) => u128::from(n),
        // Ten thousand buckets of more than a microsecond.
        _ if (quota.limit() > 10_000 || requests >= 10_000) && micros(quota) > 10_000 => 10_000,
        _ => return i128::from(time),
    };
    let window = u128::from(micros(quota));
    let bucket = u128::from(time) * n / window;
    ((bucket + 1) * window).div_ceil(n) as i128
}

impl Log {
    /// Returns the time from which a request counts no more: the end of its life. If the window has
    /// changed, it is at most one window after the last charge.
    fn leaves(&self, request: &Request, quota: &Quota) -> i128 {
        let window = i128::from(micros(quota));
        let leaves = request.time + request.life.min(window);
        if micros(quota) == self.window {
            leaves
        } else {
            leaves.min(self.latest(quota) + window.min(i128::from(self.window)))
        }
    }

    /// Returns the end of the open bucket if the window changes.
    fn latest(&self, quota: &Quota) -> i128 {
        if micros(quota) > self.window {
            i128::from(self.changed)
        } else {
            end(quota, 0, self.changed)
        }
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
        let (old, new) = (i128::from(self.window), i128::from(micros(quota)));
        let units = units.min(u64::from(u32::MAX) - self.used(quota, now));
        let time = now.max(self.changed);
        let latest = self.latest(quota);
        let counts: Vec<_> =
            self.requests.iter().map(|it| i128::from(time) < self.leaves(it, quota)).collect();
        let held = counts.iter().filter(|counts| **counts).count();
        for (request, counts) in self.requests.iter_mut().zip(counts) {
            if new != old {
                request.time = request.time.min(latest);
            }
            // A request that counts when the window grows keeps its window: at most two lives are kept.
            request.life = if counts && new > old { old } else { request.life.min(new) };
        }
        (self.changed, self.window) = (time, micros(quota));
        let open = self.requests.iter().filter(|it| it.life == new && it.time > i128::from(time));
        let stamp = open.map(|it| it.time).max().unwrap_or(end(quota, held, time));
        let same = self.requests.iter().rposition(|it| it.time == stamp && it.life == new);
        let place = same.unwrap_or_else(|| {
            self.requests.push(Request { time: stamp, life: new, units: 0 });
            self.requests.len() - 1
        });
        self.requests[place].units += units;
        Trace { time: place as u64, debt: rational(0), changed: 0 }
    }

    fn healed(&self, now: u64) -> Option<Box<dyn Model>> {
        if self.changed <= now + self.window {
            return None;
        }
        let mut healed = self.clone();
        let changed = i128::from(self.changed);
        let mut sum = 0;
        for request in &mut healed.requests {
            if changed < request.time + request.life {
                sum += request.units;
            }
            *request = Request { time: -1, life: 0, units: 0 };
        }
        // A refund finds the last one only.
        if let Some(last) = healed.requests.last_mut() {
            let life = i128::from(self.window);
            *last = Request { time: i128::from(now), life, units: sum };
        }
        healed.changed = now;
        Some(Box::new(healed))
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
