//! Instances that count themselves in the store: limiters that come and go while the store fails.

use std::time::Duration;

use plimsoll::{
    Charge, Limiter, Resilience,
    clock::ManualClock,
    store::{Answer, NodeId, Request, Store, Traits},
};
use plimsoll_testing::policy;
use tokio::{task::yield_now, time::advance};

use crate::remote::{Mood, Remote};

const START: u64 = 1_700_000_000_000_000;
const LIMIT: u64 = 120;

/// A store of two nodes: limiters announce themselves on one, and the other decides checks.
#[derive(Debug, Clone)]
struct Counting {
    instances: Remote,
    checks: Remote,
}

impl Counting {
    fn part(&self, charge: &Charge<'_>) -> (&Remote, NodeId) {
        match charge.policy().name() {
            "plimsoll-instances" => (&self.instances, NodeId(1)),
            _ => (&self.checks, NodeId(2)),
        }
    }
}

impl Store for Counting {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let (Request::Acquire(charges) | Request::Force(charges)) = request else {
            // Only units of instances are refunded here.
            return self.instances.call(request, deadline);
        };
        self.part(&charges[0]).0.call(request, deadline)
    }

    fn traits(&self) -> Traits {
        let mut traits = self.checks.traits();
        traits.counts_instances = true;
        traits
    }

    fn node(&self, charge: &Charge<'_>) -> NodeId {
        self.part(charge).1
    }
}

struct Fleet {
    clock: ManualClock,
    store: Counting,
    limiters: Vec<Limiter>,
}

impl Fleet {
    /// Starts instances that know each other.
    async fn of(count: usize) -> Self {
        let clock = ManualClock::at(START);
        let store = Counting { instances: Remote::new(&clock), checks: Remote::new(&clock) };
        let mut fleet = Self { clock, store, limiters: Vec::new() };
        for _ in 0..count {
            fleet.start(Resilience::default()).await;
        }
        fleet.pass(Duration::from_millis(2_300)).await;
        assert_eq!(fleet.counts(), vec![Some(count as u32); count]);
        fleet
    }

    async fn start(&mut self, resilience: Resilience) {
        let resilience = resilience.clock(self.clock.clone());
        self.limiters.push(Limiter::with_resilience(self.store.clone(), resilience));
        self.pass(Duration::from_millis(130)).await;
    }

    async fn pass(&self, time: Duration) {
        for _ in 0..time.as_millis() / 10 {
            self.clock.advance(Duration::from_millis(10));
            advance(Duration::from_millis(10)).await;
            for _ in 0..4 {
                yield_now().await;
            }
        }
    }

    fn set(&self, mood: Mood) {
        self.store.instances.set(mood);
        self.store.checks.set(mood);
    }

    fn counts(&self) -> Vec<Option<u32>> {
        self.limiters.iter().map(|limiter| limiter.status().instances).collect()
    }

    /// Returns the units that each instance admits of a key.
    async fn admitted(&self, key: &str) -> Vec<u64> {
        let policy = policy("p", &format!("{LIMIT}/h"));
        let mut admitted = Vec::new();
        for limiter in &self.limiters {
            let mut units = 0;
            for _ in 0..LIMIT + 20 {
                let decision = limiter.check(policy.charge(key, 1)).await.expect("it falls back");
                units += u64::from(decision.is_allowed());
            }
            admitted.push(units);
        }
        admitted
    }
}

/// An instance that starts is counted within 2.3 s. One that ends is counted for 5 s more, and then until four counts were
/// made without it.
#[tokio::test(start_paused = true)]
async fn instances_that_come_and_go_are_counted() {
    let mut fleet = Fleet::of(3).await;
    fleet.start(Resilience::default()).await;
    fleet.pass(Duration::from_millis(2_300)).await;
    assert_eq!(fleet.counts(), [Some(4); 4]);
    fleet.limiters.truncate(2);
    fleet.pass(Duration::from_secs(2)).await;
    assert_eq!(fleet.counts(), [Some(4); 2], "too early to know");
    fleet.pass(Duration::from_millis(12_500)).await;
    assert_eq!(fleet.counts(), [Some(2); 2]);
    fleet.set(Mood::Down);
    assert_eq!(fleet.admitted("alice").await, [LIMIT / 2; 2]);
}

/// Each kind of failure, and a store that loses its data: together the instances admit the limit, and the limit once
/// more while the store does not decide. They do so again after short outages, in which announcements are lost.
#[tokio::test(start_paused = true)]
async fn an_outage_admits_twice_the_limit_by_default() {
    for mood in [Mood::Down, Mood::Hangs, Mood::Mute] {
        let fleet = Fleet::of(4).await;
        let before: u64 = fleet.admitted("alice").await.iter().sum();
        assert_eq!(before, LIMIT);
        for round in 0..4 {
            fleet.set(mood);
            fleet.pass(Duration::from_secs(7)).await;
            let counts = fleet.counts();
            assert!(counts.iter().all(|it| *it >= Some(4)), "{mood:?} {round}: {counts:?}");
            let during: u64 = fleet.admitted("alice").await.iter().sum();
            let bound = if round == 0 { LIMIT } else { 0 };
            assert!(during <= bound, "{mood:?} {round}: {during}");
            let sole: u64 = fleet.admitted(&format!("key {round}")).await.iter().sum();
            assert!((1..=LIMIT).contains(&sole), "{mood:?} {round}: {sole}");
            fleet.set(Mood::Well);
            // The second announcement after it is the first that all others have come before.
            fleet.pass(Duration::from_millis(700 + 1_300 * round)).await;
        }
        fleet.pass(Duration::from_secs(16)).await;
        assert_eq!(fleet.counts(), [Some(4); 4], "{mood:?}");
    }
}

/// Instances that end during an outage leave the share of the others as it is. Those that start during it have no count:
/// they use the number that was set, or the whole limit.
#[tokio::test(start_paused = true)]
async fn the_shares_of_an_outage_do_not_grow() {
    let mut fleet = Fleet::of(4).await;
    fleet.set(Mood::Down);
    assert_eq!(fleet.admitted("alice").await, [LIMIT / 4; 4]);
    fleet.limiters.truncate(2);
    fleet.pass(Duration::from_secs(20)).await;
    assert_eq!(fleet.admitted("bob").await, [LIMIT / 4; 2]);
    fleet.start(Resilience::default()).await;
    fleet.start(Resilience::default().instances(3)).await;
    assert_eq!(fleet.counts(), [Some(4), Some(4), None, None]);
    let shares = [LIMIT / 4, LIMIT / 4, LIMIT, LIMIT / 3];
    assert_eq!(fleet.admitted("carol").await, shares);
}

/// While the node that decides fails, the node that counts sees that instances end and start.
#[tokio::test(start_paused = true)]
async fn an_outage_of_other_nodes_makes_no_share_larger() {
    let mut fleet = Fleet::of(4).await;
    fleet.store.checks.set(Mood::Down);
    assert_eq!(fleet.admitted("alice").await, [LIMIT / 4; 4]);
    fleet.limiters.truncate(2);
    fleet.pass(Duration::from_secs(20)).await;
    assert_eq!(fleet.admitted("bob").await, [LIMIT / 4; 2]);
    for _ in 0..4 {
        fleet.start(Resilience::default()).await;
    }
    fleet.pass(Duration::from_millis(2_300)).await;
    assert_eq!(fleet.admitted("carol").await, [LIMIT / 6, LIMIT / 6, 20, 20, 20, 20]);
}

/// The number that was set is used although another one is counted.
#[tokio::test(start_paused = true)]
async fn the_number_that_was_set_is_used() {
    let mut fleet = Fleet::of(1).await;
    fleet.start(Resilience::default().instances(10)).await;
    fleet.pass(Duration::from_millis(2_300)).await;
    assert_eq!(fleet.counts(), [Some(2), Some(2)]);
    fleet.set(Mood::Down);
    assert_eq!(fleet.admitted("alice").await, [LIMIT / 2, LIMIT / 10]);
}

/// An idle instance calls the store at most once a second. Without a fallback, or over a store that does not count, it
/// calls it never.
#[tokio::test(start_paused = true)]
async fn an_instance_calls_the_store_once_a_second() {
    let mut fleet = Fleet::of(1).await;
    let before = fleet.store.instances.calls();
    fleet.pass(Duration::from_secs(60)).await;
    let calls = fleet.store.instances.calls() - before;
    assert!((52..=60).contains(&calls), "{calls}");
    fleet.limiters.clear();
    fleet.start(Resilience::default().without_fallback()).await;
    fleet.limiters.push(Limiter::new(fleet.store.instances.clone()));
    let before = fleet.store.instances.calls();
    fleet.pass(Duration::from_secs(10)).await;
    assert_eq!(fleet.store.instances.calls(), before);
    assert_eq!(Limiter::in_memory().status().instances, Some(1));
}
