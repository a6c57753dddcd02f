//! The limits under test: the algorithms of the crate, and the sliding counter of textbooks.

use std::time::Duration;

use plimsoll::{
    Decision, Limiter, MemoryStore, Policy, Quota, clock::ManualClock, memory::MemoryConfig,
};

/// A limit of one key that is asked at given times, in microseconds since the epoch.
pub(crate) trait Limit {
    /// Charges one unit. Returns the wait in microseconds if it is denied.
    fn ask(&mut self, now: u64) -> Result<(), u64>;
}

/// An algorithm of the crate, over the embedded store, with a clock that is set by hand.
pub(crate) struct Real {
    limiter: Limiter,
    clock: ManualClock,
    policy: Policy,
}

impl Real {
    pub(crate) fn new(quota: Quota) -> Self {
        let clock = ManualClock::default();
        let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
        let policy = Policy::new("report", quota).expect("a valid name");
        Self { limiter: Limiter::new(store), clock, policy }
    }
}

impl Limit for Real {
    fn ask(&mut self, now: u64) -> Result<(), u64> {
        self.clock.set(now);
        match self.limiter.check_now(self.policy.charge("a client", 1)).expect("memory answers") {
            Decision::Allowed(_) => Ok(()),
            Decision::Denied(denied) => {
                let wait = denied.retry_after().expect("a unit fits the limit");
                Err(wait.as_micros() as u64)
            }
        }
    }
}

/// The sliding counter as textbooks print it: a floating-point estimate that is rounded down.
#[derive(Debug)]
pub(crate) struct Textbook {
    limit: u64,
    window: u64,
    period: u64,
    current: u64,
    previous: u64,
}

impl Textbook {
    pub(crate) fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window: window.as_micros() as u64, period: 0, current: 0, previous: 0 }
    }
}

impl Limit for Textbook {
    fn ask(&mut self, now: u64) -> Result<(), u64> {
        let period = now / self.window;
        if period != self.period {
            self.previous = if period == self.period + 1 { self.current } else { 0 };
            (self.period, self.current) = (period, 0);
        }
        let gone = (now % self.window) as f64 / self.window as f64;
        let estimate = (self.previous as f64 * (1.0 - gone)).floor() as u64 + self.current;
        if estimate < self.limit {
            self.current += 1;
            return Ok(());
        }
        // It states no exact wait.
        Err(self.window / 5_000)
    }
}
