//! Checks while a store is slow, unreachable or down.

use std::time::Duration;

use plimsoll::{
    OnFailure,
    error::Effect,
    store::{BreakerStatus, Source, Verdict},
};
use plimsoll_regions::RegionsConfig;
use plimsoll_testing::policy;
use tokio::time::{Instant, sleep, timeout};

use super::world::{Mood, World, effect};

const MICRO: Duration = Duration::from_micros(1);
const DEADLINE: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn without_its_home_a_region_has_its_share() {
    for mood in [Mood::Down, Mood::Gone, Mood::Mute] {
        let (world, api) = (World::new(2), policy("api", "10/min"));
        world.home.set(mood);
        assert_eq!(world.region(0).drain(&api, "alice").await, 3, "{mood:?}");
        assert_eq!(world.region(1).drain(&api, "alice").await, 3, "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_without_the_home_says_so_and_has_the_wait_of_the_share() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    world.home.set(Mood::Down);
    assert!(east.admits(api.charge("alice", 3)).await);
    world.clock.advance(Duration::from_secs(7));
    let denied = east.denial(api.charge("alice", 1)).await;
    assert_eq!(denied.source(), Source::Region);
    let wait = denied.retry_after().expect("it can pass");
    assert_eq!(wait, Duration::from_secs(53));
    world.clock.advance(wait - MICRO);
    assert!(!east.admits(api.charge("alice", 1)).await);
    world.clock.advance(MICRO);
    assert!(east.admits(api.charge("alice", 1)).await);

    // Only the pool could pay this.
    let denied = east.denial(api.charge("alice", 4)).await;
    assert_eq!(denied.binding().expect("one charge").verdict(), Verdict::Refused);
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn without_its_home_a_cost_that_can_never_pass_says_so() {
    for mood in [Mood::Down, Mood::Gone] {
        // Two units cannot be shared, so all of them are in the pool.
        let (world, tiny) = (World::new(2), policy("tiny", "2/min"));
        world.home.set(mood);
        for (cost, verdict, wait) in
            [(3, Verdict::OverCapacity, None), (2, Verdict::Refused, Some(Duration::from_secs(1)))]
        {
            let denied = world.region(0).denial(tiny.charge("alice", cost)).await;
            assert_eq!(denied.binding().expect("one charge").verdict(), verdict, "{mood:?}");
            assert_eq!(denied.retry_after(), wait, "{mood:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_check_waits_for_a_slow_home_beyond_its_deadline() {
    for mood in [Mood::Gone, Mood::Mute, Mood::Well] {
        let (world, api) = (World::new(2), policy("api", "10/min"));
        let east = world.region(0);
        world.home.set(mood);
        world.home.delay(Duration::from_millis(200));
        assert!(east.admits(api.charge("alice", 3)).await);
        let start = Instant::now();
        let denied = east.denial(api.charge("alice", 1)).await;
        assert!(start.elapsed() <= DEADLINE, "{mood:?}: {:?}", start.elapsed());
        assert_eq!(denied.source(), Source::Region);
    }
}

#[tokio::test(start_paused = true)]
async fn units_that_the_home_grants_too_late_are_refunded() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    world.home.delay(Duration::from_millis(200));
    assert!(east.admits(api.charge("alice", 3)).await);
    assert!(!east.admits(api.charge("alice", 4)).await);
    assert_eq!(world.home.spent(&api, "alice", "4/min"), 4, "the reply is on its way");
    sleep(Duration::from_millis(500)).await;
    assert_eq!(world.home.spent(&api, "alice", "4/min"), 0);
    world.home.delay(Duration::ZERO);
    assert!(east.admits(api.charge("alice", 4)).await);
}

#[tokio::test(start_paused = true)]
async fn units_of_a_lost_reply_are_never_used() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let [east, west] = [world.region(0), world.region(1)];
    world.home.set(Mood::Mute);
    assert_eq!(east.drain(&api, "alice").await, 3);
    world.home.set(Mood::Well);
    sleep(Duration::from_secs(2)).await;
    let lost = world.home.spent(&api, "alice", "4/min");
    assert!(lost > 0);
    assert_eq!(west.drain(&api, "alice").await, 7 - lost);
}

#[tokio::test(start_paused = true)]
async fn a_home_with_time_to_answer_is_waited_for() {
    let config = RegionsConfig::new(2).share_percent(60);
    let patient =
        |it: plimsoll::Resilience| it.without_fallback().deadline(Duration::from_millis(300));
    let (world, api) = (World::with(2, config, patient), policy("api", "10/min"));
    world.home.delay(Duration::from_millis(200));
    assert_eq!(world.region(0).drain(&api, "alice").await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_home_that_fails_does_not_open_the_breaker_of_the_region() {
    for mood in [Mood::Down, Mood::Gone] {
        let (world, api) = (World::new(2), policy("api", "10/min"));
        let east = world.region(0);
        world.home.set(mood);
        for key in 0..40_u64 {
            assert!(east.admits(api.charge(key, 3)).await);
            assert!(!east.admits(api.charge(key, 1)).await);
        }
        sleep(Duration::from_secs(2)).await;
        let status = east.limiter.status();
        assert_eq!((status.breaker, status.open_breakers), (Some(BreakerStatus::Closed), 0));
        let home = status.home.expect("it has one");
        assert_ne!(home.breaker, Some(BreakerStatus::Closed), "{mood:?}");
        assert_eq!(home.open_breakers, 1, "{mood:?}");

        // Checks no longer wait for the home.
        assert!(east.admits(api.charge("alice", 3)).await);
        let start = Instant::now();
        assert!(!east.admits(api.charge("alice", 1)).await);
        assert_eq!(start.elapsed(), Duration::ZERO);

        // Its breaker closes when it answers again.
        world.home.set(Mood::Well);
        for _ in 0..100 {
            sleep(Duration::from_millis(100)).await;
            assert!(east.limiter.peek(api.charge("bob", 1)).await.is_ok());
        }
        assert!(east.admits(api.charge("alice", 1)).await);
        assert_eq!(
            east.limiter.status().home.expect("it has one").breaker,
            Some(BreakerStatus::Closed)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_home_does_not_open_a_breaker() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    world.home.delay(Duration::from_millis(200));
    for key in 0..40_u64 {
        assert!(east.admits(api.charge(key, 3)).await);
        assert!(!east.admits(api.charge(key, 1)).await);
    }
    sleep(Duration::from_secs(2)).await;
    let status = east.limiter.status();
    assert_eq!(status.breaker, Some(BreakerStatus::Closed));
    assert_eq!(status.home.expect("it has one").breaker, Some(BreakerStatus::Closed));
}

#[tokio::test(start_paused = true)]
async fn without_its_own_store_a_region_does_not_ask_the_home() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    east.store.set(Mood::Down);
    let result = east.limiter.check(api.charge("alice", 1)).await;
    assert_eq!(effect(result), Effect::None);
    assert_eq!(world.home.checks(), 0);
    for _ in 0..20 {
        assert!(east.limiter.check(api.charge("alice", 1)).await.is_err());
    }
    assert!(matches!(east.limiter.status().breaker, Some(BreakerStatus::Open { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_pool_gets_its_units_back_if_the_region_fails() {
    let (world, a, b) = (World::new(2), policy("a", "10/min"), policy("b", "10/min"));
    let east = world.region(0);
    assert!(east.admits(a.charge("alice", 3)).await);
    // The share refuses `a`, the pool pays it, and then the share should pay `b`.
    east.store.fail_after(1);
    let result = east.limiter.check([a.charge("alice", 1), b.charge("alice", 1)]).await;
    assert_eq!(effect(result), Effect::None, "all units are refunded");
    assert_eq!((world.home.checks(), world.home.refunds()), (1, 1));
    assert_eq!(world.home.spent(&a, "alice", "4/min"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_share_gets_its_units_back_if_the_home_fails() {
    let (world, api, tiny) = (World::new(2), policy("api", "10/min"), policy("tiny", "1/min"));
    let east = world.region(0);
    for (mood, expected) in [(Mood::Down, Effect::None), (Mood::Mute, Effect::Unknown)] {
        world.home.set(mood);
        let strict = tiny.charge("alice", 1).with_on_failure(OnFailure::Deny);
        let result = east.limiter.check([api.charge("alice", 1), strict]).await;
        assert_eq!(effect(result), expected, "{mood:?}");
        assert_eq!(east.store.spent(&api, "alice", "3/min"), 0, "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_that_fails_shows_in_the_effect() {
    let (world, api, tiny) = (World::new(2), policy("api", "10/min"), policy("tiny", "1/min"));
    let east = world.region(0);
    world.home.delay(Duration::from_millis(20));
    let strict = tiny.charge("alice", 1).with_on_failure(OnFailure::Deny);
    let charges = [api.charge("alice", 1), strict];
    let check = tokio::spawn({
        let (limiter, charges) = (east.limiter.clone(), charges.map(plimsoll::Charge::into_owned));
        async move { limiter.check(charges).await }
    });
    world.home.set(Mood::Gone);
    sleep(Duration::from_millis(10)).await;
    east.store.set(Mood::Down);
    assert_eq!(effect(check.await.expect("no panic")), Effect::Applied, "the share stays charged");
}

/// A world with the defaults, so with a fallback in each region.
fn with_fallback(share_percent: u32) -> World {
    World::with(2, RegionsConfig::new(2).share_percent(share_percent), |it| it)
}

#[tokio::test(start_paused = true)]
async fn while_the_home_is_gone_the_on_failure_of_a_charge_decides_what_needs_the_pool() {
    for mood in [Mood::Down, Mood::Gone, Mood::Mute] {
        let (world, api, tiny) =
            (with_fallback(60), policy("api", "10/min"), policy("tiny", "2/min"));
        let east = world.region(0);
        world.home.set(mood);
        assert_eq!(east.drain(&api, "alice").await, 3, "{mood:?}");
        for policy in [&api, &tiny] {
            let charge = || policy.charge("alice", 1);
            let denied = east.denial(charge()).await;
            assert_eq!(denied.source(), Source::Region, "{mood:?}");
            assert_eq!(denied.binding().expect("one charge").standing().remaining, 0);
            let allowed = east.check(charge().with_on_failure(OnFailure::Allow)).await;
            assert!(allowed.is_allowed(), "{mood:?}");
            assert_eq!(allowed.source(), Source::Region, "{mood:?}");
            let strict = charge().with_on_failure(OnFailure::Deny);
            assert!(east.limiter.check(strict).await.is_err(), "{mood:?}");
        }
        let denied = east.denial(tiny.charge("alice", 1)).await;
        assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
        // The strictest charge decides, and nothing is spent.
        let lax = || tiny.charge("bob", 1).with_on_failure(OnFailure::Allow);
        assert!(east.admits([api.charge("bob", 1), lax()]).await, "{mood:?}");
        assert!(!east.admits([api.charge("bob", 1), api.charge("alice", 1), lax()]).await);
        assert_eq!(east.store.spent(&api, "bob", "3/min"), 1, "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_region_that_is_cut_off_never_spends_the_pool() {
    for mood in [Mood::Down, Mood::Gone, Mood::Mute] {
        // Two units cannot be shared, so all of them are in the pool.
        let (world, tiny) = (with_fallback(70), policy("tiny", "2/30s"));
        assert_eq!(world.region(0).drain(&tiny, "alice").await, 2);
        world.home.set(mood);
        for _ in 0..40 {
            assert!(!world.region(1).admits(tiny.charge("alice", 1)).await, "{mood:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_its_own_store_a_region_falls_back_to_its_share() {
    for mood in [Mood::Down, Mood::Gone, Mood::Mute] {
        let (world, api) = (with_fallback(60), policy("api", "10/30s"));
        let [east, west] = [world.region(0), world.region(1)];
        assert_eq!(west.drain(&api, "alice").await, 7, "its share of 3, and the pool of 4");
        assert_eq!(east.drain(&api, "alice").await, 3);
        east.store.set(mood);
        // The denial leaves the deny cache.
        world.clock.advance(Duration::from_secs(2));
        // The bound is 10 and the share.
        assert_eq!(east.drain(&api, "alice").await, 3, "{mood:?}");
        let checks = world.home.checks();
        let denied = east.denial(api.charge("alice", 1)).await;
        assert_eq!(denied.source(), Source::Fallback, "{mood:?}");
        assert_eq!(world.home.checks(), checks, "{mood:?}: the home is not asked");
        // The pool could pay this, once the store answers again.
        let denied = east.denial(api.charge("bob", 4)).await;
        assert_eq!(denied.binding().expect("one charge").verdict(), Verdict::Refused);
    }
}

/// The standing shows the share, before and after the breaker opens.
#[tokio::test(start_paused = true)]
async fn the_fallback_of_a_region_shows_the_limit_of_its_share() {
    let (world, api) = (with_fallback(60), policy("api", "10/30s"));
    let east = world.region(0);
    east.store.set(Mood::Down);
    for key in 0..40_u64 {
        for (cost, left) in [(1, 2), (2, 0), (1, 0)] {
            let decision = east.check(api.charge(key, cost)).await;
            assert_eq!(decision.source(), Source::Fallback);
            let standing = *decision.outcomes().next().expect("one charge").standing();
            assert_eq!((standing.limit, standing.remaining), (3, left));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn units_of_the_fallback_are_charged_to_the_share_later() {
    let (world, api) = (with_fallback(60), policy("api", "10/h"));
    let east = world.region(0);
    east.store.set(Mood::Down);
    let kept = east.receipt(api.charge("alice", 2)).await;
    let refunded = east.receipt(api.charge("alice", 1)).await;
    assert_eq!((kept.source, refunded.source), (Source::Fallback, Source::Fallback));
    assert_eq!(east.limiter.hold(refunded).refund().await.expect("in this process"), 1);
    east.limiter.penalize(api.charge("bob", 2)).await.expect("kept for the store");
    east.store.set(Mood::Well);
    for _ in 0..100 {
        sleep(Duration::from_millis(100)).await;
        let _ = east.limiter.check(api.charge("carol", 1)).await;
    }
    assert_eq!(east.store.spent(&api, "alice", "3/h"), 2);
    let paid = east.store.spent(&api, "bob", "3/h") + world.home.spent(&api, "bob", "4/h");
    assert_eq!(paid, 2);
}

#[tokio::test(start_paused = true)]
async fn instances_of_a_region_divide_its_share_while_its_store_is_down() {
    let config = RegionsConfig::new(2).share_percent(80);
    let (world, api) = (World::with(2, config, |it| it.instances(4)), policy("api", "20/min"));
    let east = world.region(0);
    east.store.set(Mood::Down);
    assert_eq!(east.drain(&api, "alice").await, 2, "a quarter of 8");
}

#[tokio::test(start_paused = true)]
async fn a_check_whose_caller_leaves_spends_all_or_nothing() {
    let (world, api, tiny) = (World::new(2), policy("api", "10/min"), policy("tiny", "1/min"));
    let east = world.region(0);
    for wait in [0, 10, 30] {
        for is_denied in [false, true] {
            let key = &*format!("{wait} {is_denied}");
            world.home.delay(Duration::ZERO);
            if is_denied {
                assert!(world.region(1).admits(tiny.charge(key, 1)).await);
            }
            world.home.delay(Duration::from_millis(20));
            let check = east.limiter.check([api.charge(key, 1), tiny.charge(key, 1)]);
            let left = timeout(Duration::from_millis(wait), check).await;
            assert_eq!(left.is_err(), wait < 20);
            sleep(Duration::from_secs(3)).await;
            let units = u64::from(!is_denied);
            assert_eq!(east.store.spent(&api, key, "3/min"), units, "{key}");
            assert_eq!(world.home.spent(&tiny, key, "1/min"), 1);
        }
    }
}
