//! Leased quotas: the share and the pool are leased each by itself.

use std::time::Duration;

use plimsoll::{Decision, Policy, Resilience, store::Source};
use plimsoll_regions::RegionsConfig;
use plimsoll_testing::policy;
use tokio::time::{Instant, sleep};

use super::world::{Mood, Region, World};

const STEP: Duration = Duration::from_millis(1);

/// Two regions with shares of 300, and a pool of 400. The store counts a fixed window as it is, leased or
/// not.
fn world() -> (World, Policy) {
    let config = RegionsConfig::new(2).share_percent(60);
    let world = World::with(2, config, Resilience::without_fallback);
    world.clock.set(1_699_999_980_000_000); // the beginning of a minute
    (world, policy("hot", "1000/min fixed-window leased(1s)"))
}

/// Makes a check of 1 unit each millisecond. Returns the numbers of those admitted, and of those that
/// were decided from leased units.
async fn spend(world: &World, region: &Region, policy: &Policy, checks: u32) -> (u64, u64) {
    let (mut admitted, mut leased) = (0, 0);
    for _ in 0..checks {
        let decision = region.check(policy.charge("alice", 1)).await;
        admitted += u64::from(decision.is_allowed());
        leased += u64::from(decision.is_allowed() && decision.source() == Source::Leased);
        world.clock.advance(STEP);
        sleep(STEP).await;
    }
    (admitted, leased)
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_is_decided_from_stocks_of_both_parts() {
    let (world, hot) = world();
    let [east, west] = [world.region(0), world.region(1)];
    let (admitted, leased) = spend(&world, east, &hot, 1_000).await;
    assert_eq!(admitted, 700);
    assert!(leased > 500, "{leased}");
    let requests = east.store.checks() + world.home.checks();
    assert!(requests < 200, "{requests} requests for 1000 checks");
    assert_eq!(spend(&world, west, &hot, 1_000).await.0, 300);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_far_away_is_leased_in_the_background() {
    let (world, hot) = world();
    let east = world.region(0);
    world.home.delay(Duration::from_millis(200));
    let (mut waits, mut admitted, mut from_pool) = (Vec::new(), 0, 0);
    for _ in 0..3_000 {
        let start = Instant::now();
        let decision = east.check(hot.charge("alice", 1)).await;
        waits.push(start.elapsed());
        if decision.is_allowed() {
            admitted += 1;
            from_pool += u64::from(admitted > 300);
        }
        let waited = start.elapsed();
        world.clock.advance(waited.max(STEP));
        sleep(STEP).await;
    }
    assert!(
        waits.iter().all(|wait| *wait <= Duration::from_millis(50)),
        "{:?}",
        waits.iter().max()
    );
    assert!(from_pool > 200, "{from_pool} of 400");
    let at_once = waits.iter().filter(|wait| wait.is_zero()).count();
    assert!(at_once > 2_000, "{at_once} of 3000 checks did not wait");
}

#[tokio::test(start_paused = true)]
async fn both_stocks_are_returned_at_the_close() {
    let (world, hot) = world();
    let east = world.region(0);
    let (admitted, _) = spend(&world, east, &hot, 400).await;
    assert_eq!(admitted, 400);
    let counted = || {
        east.store.spent(&hot, "alice", "300/min fixed-window")
            + world.home.spent(&hot, "alice", "400/min fixed-window")
    };
    assert!(counted() > 400, "units in stock");
    let status = east.limiter.status();
    let home = status.home.expect("it has one");
    assert_eq!(status.leased_units + home.leased_units, counted() - 400);
    east.limiter.close().await.expect("both answer");
    assert_eq!(counted(), 400);
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_leased_units_of_the_pool_goes_back_to_the_stock() {
    let (world, hot) = world();
    let east = world.region(0);
    spend(&world, east, &hot, 400).await;
    let decision = east.check(hot.charge("alice", 1)).await;
    let Decision::Allowed(allowed) = decision else { panic!("denied: {decision:?}") };
    let units = || east.limiter.status().home.expect("it has one").leased_units;
    let before = units();
    let refunds = world.home.refunds();
    let receipt = allowed.into_receipt();
    assert_eq!(receipt.source, Source::Leased);
    assert_eq!(east.limiter.hold(receipt).refund().await.expect("a refund"), 1);
    assert_eq!((units(), world.home.refunds()), (before + 1, refunds));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_of_the_home_is_not_seen_by_busy_keys() {
    let (world, hot) = world();
    let east = world.region(0);
    spend(&world, east, &hot, 400).await;
    let stock = east.limiter.status().home.expect("it has one").leased_units;
    world.home.set(Mood::Gone);
    let (admitted, leased) = spend(&world, east, &hot, stock as u32).await;
    assert!(admitted >= stock * 9 / 10 && leased == admitted, "{admitted} of {stock}");
    let denied = loop {
        match east.check(hot.charge("alice", 1)).await {
            Decision::Denied(denied) => break denied,
            Decision::Allowed(_) => world.clock.advance(STEP),
        }
    };
    assert_eq!(denied.source(), Source::Region);
}
