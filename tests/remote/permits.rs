//! Units in flight that are dropped in unusual places: without a runtime, in another one, after its end, in a
//! panic, and many at once.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use plimsoll::{
    Limiter, MemoryStore, Policy, Quota, Resilience,
    clock::{ManualClock, SystemClock, TokioClock},
    limiter::{Reservation, Reserved},
    memory::MemoryConfig,
    store::{Answer, Request, Store},
};
use plimsoll_testing::{
    calm::{eventually, on_a_calm_machine},
    servers::until,
};
use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, sleep},
};

use crate::remote::{Mood, Remote};

const UNITS: u64 = 3;

/// A limiter over a store in which nothing expires, and another one that looks at its units.
struct World {
    remote: Remote,
    limiter: Limiter,
    observer: Limiter,
    jobs: Policy,
}

impl World {
    fn new(units: u64) -> Self {
        let remote = Remote::new(&ManualClock::at(1_700_000_000_000_000));
        let limiter = Limiter::with_resilience(remote.clone(), Resilience::default());
        let observer = Limiter::with_resilience(remote.clone(), Resilience::none());
        let quota = Quota::concurrent(units).expires(Duration::from_secs(60)).expect("in bounds");
        Self { remote, limiter, observer, jobs: Policy::new("jobs", quota).expect("valid") }
    }

    async fn hold(&self) -> Reservation {
        match self.limiter.reserve(self.jobs.charge("all", 1)).await.expect("an answer") {
            Reserved::Held(held) => held,
            Reserved::Denied(denied) => panic!("{denied:?}"),
        }
    }

    async fn free(&self) -> u64 {
        let peek = self.observer.peek(self.jobs.charge("all", 0)).await.expect("an answer");
        peek.binding().expect("a charge").standing().remaining
    }
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The last unit: the task that renews may have ended by itself.
#[tokio::test(start_paused = true)]
async fn a_unit_that_is_dropped_without_a_runtime_is_released() {
    let world = World::new(UNITS);
    let held = world.hold().await;
    assert_eq!(world.free().await, UNITS - 1);
    thread::spawn(move || drop(held)).join().expect("no panic");
    sleep(Duration::from_millis(20)).await;
    assert_eq!(world.free().await, UNITS);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_is_dropped_without_a_runtime_releases_its_unit() {
    let world = Arc::new(World::new(UNITS));
    drop(world.hold().await);
    world.remote.set(Mood::Late);
    let mut check = {
        let world = Arc::clone(&world);
        Box::pin(async move { world.hold().await })
    };
    assert!(futures_util::poll!(&mut check).is_pending());
    thread::spawn(move || drop(check)).join().expect("no panic");
    world.remote.set(Mood::Well);
    sleep(Duration::from_millis(20)).await;
    assert_eq!(world.free().await, UNITS);
}

#[test]
fn a_unit_is_released_in_another_runtime_and_after_the_end_of_its_own_and_without_any() {
    let world = World::new(UNITS);
    let (first, second) = (current_thread(), current_thread());
    let (one, other, last) =
        first.block_on(async { (world.hold().await, world.hold().await, world.hold().await) });
    let observer = current_thread();
    let becomes_free = |units: u64| {
        observer.block_on(eventually("a unit is free", async || world.free().await == units));
    };
    second.block_on(async { drop(one) });
    becomes_free(1);
    drop(first);
    second.block_on(async { drop(other) });
    becomes_free(2);
    drop(second);
    drop(last);
    becomes_free(UNITS);
}

/// In a runtime that is not polled any more.
#[test]
fn a_runtime_that_stands_still_holds_up_no_release() {
    let world = World::new(UNITS);
    let still = current_thread();
    let (one, other) = still.block_on(async { (world.hold().await, world.hold().await) });
    let entered = still.enter();
    drop(one);
    drop(entered);
    let runtime = current_thread();
    runtime.block_on(eventually("it is free", async || world.free().await == UNITS - 1));
    drop(other);
    runtime.block_on(eventually("it is free", async || world.free().await == UNITS));
}

#[tokio::test(start_paused = true)]
async fn a_panic_releases_the_units_that_it_drops() {
    let world = World::new(UNITS);
    let held = [world.hold().await, world.hold().await];
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        resume_unwind(Box::new("work"));
    }));
    assert!(panicked.is_err());
    sleep(Duration::from_millis(20)).await;
    assert_eq!(world.free().await, UNITS);
}

#[tokio::test(start_paused = true)]
async fn all_of_100_000_units_dropped_at_once_are_released() {
    const MANY: u64 = 100_000;
    let world = World::new(MANY);
    let mut held = Vec::new();
    for _ in 0..MANY {
        held.push(world.hold().await);
    }
    assert_eq!(world.free().await, 0);
    thread::spawn(move || drop(held)).join().expect("no panic");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.free().await, MANY);
}

/// A store whose answers take 300 ms, and which decides when it answers.
#[derive(Debug, Clone)]
struct Distant(Arc<MemoryStore>);

impl Store for Distant {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let Request::Refund(receipt) = request else {
            return self.0.call(request, deadline);
        };
        assert_eq!(receipt.lines().len(), 1);
        let (store, line) = (Arc::clone(&self.0), receipt.lines()[0].charge.clone());
        Answer::pending(async move {
            sleep(Duration::from_millis(300)).await;
            let answer = store.call(Request::Reset(&[line]), None);
            answer.await
        })
    }
}

/// A release that is on its way when the limiter is closed has reached the store when that call returns.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_limiter_waits_for_releases_in_flight() {
    let clock = MemoryConfig::default().clock(TokioClock::new());
    let store = Distant(Arc::new(MemoryStore::new(clock)));
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let jobs = Policy::new("jobs", Quota::concurrent(1)).expect("valid");
    for pause in [0, 1, 20, 200] {
        let held = limiter.reserve(jobs.charge("all", 1)).await.expect("an answer");
        assert!(matches!(held, Reserved::Held(_)));
        drop(held);
        sleep(Duration::from_millis(pause)).await;
        limiter.close().await.expect("an answer");
        let peek = limiter.peek(jobs.charge("all", 0)).await.expect("an answer");
        let free = peek.binding().expect("a charge").standing().remaining;
        assert_eq!(free, 1, "closed {pause} ms after the drop");
    }
}

/// While the store cannot answer, each of two instances has half of the limit.
#[tokio::test(start_paused = true)]
async fn an_instance_has_its_share_of_the_units_in_flight() {
    let remote = Remote::new(&ManualClock::at(1_700_000_000_000_000));
    remote.set(Mood::Down);
    let limiter = Limiter::with_resilience(remote.clone(), Resilience::default().instances(2));
    let jobs = Policy::new("jobs", Quota::concurrent(6)).expect("valid");
    let mut held = Vec::new();
    for _ in 0..50 {
        if let Ok(Reserved::Held(unit)) = limiter.reserve(jobs.charge("all", 1)).await {
            held.push(unit);
        }
    }
    assert_eq!(held.len(), 3);
    // Released units are free again, without the store.
    drop(held.pop());
    let again = limiter.reserve(jobs.charge("all", 1)).await.expect("an answer");
    assert!(matches!(again, Reserved::Held(_)));
}

/// The units of a runtime that is not polled any more, while another one is.
#[test]
fn a_runtime_that_stands_still_lets_no_unit_expire() {
    let runtime = current_thread();
    // A process that stands still itself may renew too late.
    runtime.block_on(on_a_calm_machine(async || {
        tokio::task::spawn_blocking(hold_in_still_runtime).await.expect("no panic")
    }));
}

/// Returns an error if a unit has expired.
fn hold_in_still_runtime() -> Result<(), String> {
    let store = Remote::with_clock(SystemClock::new());
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let quota = Quota::concurrent(2).expires(Duration::from_secs(1)).expect("in bounds");
    let jobs = Policy::new("jobs", quota).expect("valid");
    let still = current_thread();
    let held = still.block_on(limiter.reserve(jobs.charge("all", 1))).expect("an answer");
    assert!(matches!(held, Reserved::Held(_)));
    let runtime = current_thread();
    let judged = runtime.block_on(async {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            let other = limiter.reserve(jobs.charge("all", 1)).await.expect("an answer");
            let more = limiter.check(jobs.charge("all", 1)).await.expect("an answer");
            if more.is_allowed() {
                return Err(format!("the unit has expired after {:?}", start.elapsed()));
            }
            drop(other);
            sleep(Duration::from_millis(30)).await;
        }
        Ok(())
    });
    drop((held, still));
    judged
}

/// The answer to a check waits for a runtime that is blocked, until its unit has expired and another request has
/// it.
#[test]
fn a_unit_that_expires_before_its_answer_is_polled_is_not_used() {
    let remote = Remote::with_clock(SystemClock::new());
    let [limiter, other] =
        [(); 2].map(|()| Limiter::with_resilience(remote.clone(), Resilience::none()));
    let quota = Quota::concurrent(1).expires(Duration::from_secs(1)).expect("in bounds");
    let jobs = Policy::new("jobs", quota).expect("valid");
    let (runtime, of_other) = (current_thread(), current_thread());
    remote.set(Mood::Late);
    let mut check = Box::pin(limiter.reserve(jobs.charge("all", 1)));
    runtime.block_on(async { assert!(futures_util::poll!(&mut check).is_pending()) });
    thread::sleep(Duration::from_millis(1_100));
    let held = of_other.block_on(other.reserve(jobs.charge("all", 1))).expect("an answer");
    assert!(matches!(held, Reserved::Held(_)), "it has expired");
    let denied = runtime.block_on(check).expect("an answer");
    assert!(matches!(denied, Reserved::Denied(_)), "two requests with one unit");
    drop(held);
    // A late answer is no denial if the unit is free.
    let mut check = Box::pin(limiter.reserve(jobs.charge("all", 1)));
    let free = || {
        runtime.block_on(async {
            let peek = limiter.peek(jobs.charge("all", 0)).await.expect("an answer");
            peek.binding().expect("a charge").standing().remaining == 1
        })
    };
    until("the unit is free", free);
    runtime.block_on(async { assert!(futures_util::poll!(&mut check).is_pending()) });
    thread::sleep(Duration::from_millis(200));
    let held = runtime.block_on(check).expect("an answer");
    assert!(matches!(held, Reserved::Held(_)));
}
