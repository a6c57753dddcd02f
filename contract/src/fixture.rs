//! A store under test, and helpers of several promises.

use std::{future::Future, time::Duration};

use plimsoll::{Limiter, Policy, Quota, limiter::Reservation};

/// A limiter over a fresh store, and a function that sets the time of the store.
pub struct Fixture {
    pub limiter: Limiter,
    set: Box<dyn Fn(u64) + Send + Sync>,
    is_shared: bool,
}

impl Fixture {
    /// Creates a fixture over `limiter`, whose store has no key yet. `set` sets the time of the store, in
    /// microseconds since the epoch, also backward.
    pub fn new(limiter: Limiter, set: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { limiter, set: Box::new(set), is_shared: false }
    }

    /// Marks the store as shared by several instances, so that it counts leased quotas for longer.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// Returns whether the store is shared by several instances.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Sets the time, in microseconds since the epoch, also backward.
    pub fn set(&self, micros: u64) {
        (self.set)(micros);
    }
}

/// Creates a policy with a quota such as `10/s fixed-window`.
pub fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota.parse::<Quota>().expect("a valid quota")).expect("a valid name")
}

/// Returns a duration in microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("fits")
}

/// Reserves a charge, to be refunded or settled.
pub async fn hold(limiter: &Limiter, charge: plimsoll::Charge<'_>) -> Reservation {
    match limiter.reserve(charge).await.expect("the store answers") {
        plimsoll::limiter::Reserved::Held(reservation) => reservation,
        plimsoll::limiter::Reserved::Denied(denied) => panic!("refused: {denied:?}"),
    }
}

/// Returns the most units of `spent` (time, units) in any trailing window `(now - window, now]`.
pub fn most_in_any_window(spent: &[(u64, u64)], window: u64) -> u128 {
    let mut spent = spent.to_vec();
    spent.sort_unstable();
    let mut most = 0;
    let mut inside = 0;
    let mut oldest = 0;
    for (end, units) in &spent {
        inside += u128::from(*units);
        while spent[oldest].0 + window <= *end {
            inside -= u128::from(spent[oldest].1);
            oldest += 1;
        }
        most = inside.max(most);
    }
    most
}

/// Runs a promise to its end, on a runtime of its own.
pub fn run(promise: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(promise);
}
