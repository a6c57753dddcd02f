//! Support for the tests: a limiter with a manual clock, and counts of the cases that a test reached.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    future::Future,
    io::Write,
    pin::pin,
    sync::Mutex,
    task::{Context, Poll, Waker},
};

use plimsoll::{Limiter, MemoryStore, clock::ManualClock, memory::MemoryConfig};
use plimsoll_contract::Fixture;

use crate::Counted;

pub async fn memory() -> Fixture {
    over_memory(Limiter::new)
}

/// Makes a fixture over a memory store behind the wrapper of the page on stores.
pub async fn wrapped_memory() -> Fixture {
    over_memory(|store| Limiter::new(Counted::new(store)))
}

fn over_memory(limiter: impl FnOnce(MemoryStore) -> Limiter) -> Fixture {
    let clock = ManualClock::default();
    let config = MemoryConfig::default().max_keys(10_000).clock(clock.clone());
    Fixture::new(limiter(MemoryStore::new(config)), move |micros| clock.set(micros))
}

/// Returns the output of a future that is ready at the first poll.
pub fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is pending"),
    }
}

/// Returns the output of a future that may wait for the thread of a limiter.
pub fn after_the_keeper<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..1_000_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::thread::yield_now();
    }
    panic!("the future is pending");
}

/// Counts how often a test reached each of the cases that it must reach.
#[derive(Debug, Default)]
pub struct CaseCounts(Mutex<BTreeMap<&'static str, u64>>);

impl CaseCounts {
    pub fn expecting(cases: &[&'static str]) -> Self {
        Self(Mutex::new(cases.iter().map(|case| (*case, 0)).collect()))
    }

    pub fn count(&self, case: &'static str) {
        *self.0.lock().expect("no panic").entry(case).or_default() += 1;
    }

    pub fn count_if(&self, condition: bool, case: &'static str) {
        if condition {
            self.count(case);
        }
    }

    /// Prints the counts, past the capture of the test harness, and fails if a case is missing.
    pub fn report(&self, title: impl Debug) {
        let cases = self.0.lock().expect("no panic");
        let mut text = format!("\n{title:?} reached:\n");
        for (case, count) in cases.iter() {
            text += &format!("{count:>9}  {case}\n");
        }
        std::io::stderr().write_all(text.as_bytes()).expect("stderr");
        let missing: Vec<_> = cases.iter().filter(|(_, count)| **count == 0).collect();
        assert!(missing.is_empty(), "never reached: {missing:?}");
    }
}

/// A memory store whose statistics a test can read while a limiter owns the other handle.
#[derive(Debug, Clone)]
pub struct Watched(pub std::sync::Arc<MemoryStore>);

impl Watched {
    pub fn new(config: MemoryConfig) -> Self {
        Self(std::sync::Arc::new(MemoryStore::new(config)))
    }
}

impl plimsoll::store::Store for Watched {
    fn call(
        &self,
        request: plimsoll::store::Request<'_>,
        deadline: Option<std::time::Instant>,
    ) -> plimsoll::store::Answer {
        self.0.call(request, deadline)
    }

    fn traits(&self) -> plimsoll::store::Traits {
        self.0.traits()
    }

    fn status(&self) -> plimsoll::store::Status {
        self.0.status()
    }
}
