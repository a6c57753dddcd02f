//! Refunds, settlements, forced charges, peeks, resets and blocks.

use std::time::Duration;

use plimsoll::{Quota, error::Effect, limiter::Reserved, store::Source};
use plimsoll_regions::RegionsConfig;
use plimsoll_testing::policy;
use tokio::time::{Instant, sleep};

use super::world::{Mood, Region, World, effect};

#[tokio::test(start_paused = true)]
async fn a_refund_goes_to_the_part_that_has_paid() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    let share = east.receipt(api.charge("alice", 3)).await;
    let pool = east.receipt(api.charge("alice", 4)).await;
    assert_eq!(east.limiter.hold(pool).refund().await.expect("a refund"), 4);
    let spent =
        || (east.store.spent(&api, "alice", "3/min"), world.home.spent(&api, "alice", "4/min"));
    assert_eq!(spent(), (3, 0));
    assert_eq!(east.limiter.hold(share).refund().await.expect("a refund"), 3);
    assert_eq!(spent(), (0, 0));
    assert_eq!(east.drain(&api, "alice").await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_several_charges_reaches_both_parts() {
    let (world, a, b) = (World::new(2), policy("a", "10/min"), policy("b", "10/min"));
    let east = world.region(0);
    assert!(east.admits(a.charge("alice", 3)).await);
    let both = east.receipt([a.charge("alice", 2), b.charge("alice", 1)]).await;
    assert_eq!(world.home.spent(&a, "alice", "4/min"), 2);
    assert_eq!(east.limiter.hold(both).refund().await.expect("a refund"), 3);
    assert_eq!(world.home.spent(&a, "alice", "4/min"), 0);
    assert_eq!(east.store.spent(&b, "alice", "3/min"), 0);
    assert_eq!(east.store.spent(&a, "alice", "3/min"), 3, "the unit of the first check");
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_one_part_shows_in_the_effect_of_the_other() {
    let (world, a, b) = (World::new(2), policy("a", "10/min"), policy("b", "10/min"));
    let east = world.region(0);
    let charges = || [a.charge("alice", 2), b.charge("alice", 1)];
    assert!(east.admits(a.charge("alice", 3)).await);
    let both = east.receipt(charges()).await;
    world.home.set(Mood::Down);
    assert_eq!(effect(east.limiter.hold(both).refund().await), Effect::Applied);
    assert_eq!(east.store.spent(&b, "alice", "3/min"), 0, "this part is refunded");
}

/// Units in flight are renewed by the part that has granted them or by another, and each is released where it
/// was charged last.
#[tokio::test(start_paused = true)]
async fn units_in_flight_are_renewed_and_released_in_their_parts() {
    let (world, jobs) = (World::new(2), policy("jobs", "10 concurrent expires(4s)"));
    let [east, west] = [world.region(0), world.region(1)];
    let mut held = Vec::new();
    for _ in 0..7 {
        match east.limiter.reserve(jobs.charge("alice", 1)).await.expect("both answer") {
            Reserved::Held(unit) => held.push(unit),
            Reserved::Denied(denied) => panic!("{denied:?}"),
        }
    }
    let in_flight =
        |region: &Region| region.store.spent(&jobs, "alice", "3 concurrent expires(4s)");
    let in_pool = || world.home.spent(&jobs, "alice", "4 concurrent expires(4s)");
    for _ in 0..40 {
        assert_eq!(in_flight(east) + in_pool(), 7, "all are in flight");
        assert!(!east.admits(jobs.charge("alice", 1)).await);
        world.clock.advance(Duration::from_millis(250));
        sleep(Duration::from_millis(250)).await;
    }
    let west_held = west.drain(&jobs, "alice").await;
    assert!(west_held <= 3, "{west_held} units of the share of another region");
    drop(held);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(in_flight(east) + in_pool(), 0, "all are released");
}

#[tokio::test(start_paused = true)]
async fn settling_refunds_the_rest_to_its_part() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    let share = east.receipt(api.charge("alice", 3)).await;
    let pool = east.receipt(api.charge("alice", 4)).await;
    east.limiter.hold(pool).settle(1).await.expect("both answer");
    east.limiter.hold(share).settle(2).await.expect("both answer");
    assert_eq!(east.store.spent(&api, "alice", "3/min"), 2);
    assert_eq!(world.home.spent(&api, "alice", "4/min"), 1);
}

#[tokio::test(start_paused = true)]
async fn settling_upward_spends_the_share_and_then_the_pool_for_all_regions() {
    let (world, tokens) = (World::new(2), policy("tokens", "100/min"));
    let [east, west] = [world.region(0), world.region(1)];
    // Shares of 30, and a pool of 40.
    let receipt = east.receipt(tokens.charge("alice", 1)).await;
    east.limiter.hold(receipt).settle(25).await.expect("both answer");
    assert_eq!(east.store.spent(&tokens, "alice", "30/min"), 25);
    let receipt = east.receipt(tokens.charge("alice", 1)).await;
    east.limiter.hold(receipt).settle(50).await.expect("both answer");
    assert_eq!(east.store.spent(&tokens, "alice", "30/min"), 26);
    assert_eq!(world.home.spent(&tokens, "alice", "40/min"), 40, "49 of 40");
    assert_eq!(east.drain(&tokens, "alice").await, 4);
    assert_eq!(west.drain(&tokens, "alice").await, 30);
}

#[tokio::test(start_paused = true)]
async fn a_forced_charge_falls_back_on_the_share_if_the_home_is_not_charged() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    world.home.set(Mood::Down);
    assert!(east.limiter.penalize(api.charge("alice", 8)).await.is_ok());
    assert_eq!(east.store.spent(&api, "alice", "3/min"), 3, "8 of 3");
    assert!(!east.admits(api.charge("alice", 1)).await);

    world.home.set(Mood::Mute);
    let result = east.limiter.penalize([api.charge("bob", 2), api.charge("carol", 8)]).await;
    assert_eq!(effect(result), Effect::Applied, "bob's");
    assert_eq!(effect(east.limiter.penalize(api.charge("dave", 8)).await), Effect::Unknown);
    assert_eq!(east.store.spent(&api, "dave", "3/min"), 0, "the pool may have paid");
}

#[tokio::test(start_paused = true)]
async fn a_forced_charge_can_be_refunded() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    for units in [2, 8] {
        let forced = east.limiter.penalize(api.charge("alice", units)).await.expect("both answer");
        let receipt = forced.into_receipt();
        assert_eq!(east.limiter.hold(receipt).refund().await.expect("a refund"), units);
    }
    assert_eq!(east.drain(&api, "alice").await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_peek_shows_what_is_left_of_share_and_pool() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let [east, west] = [world.region(0), world.region(1)];
    assert_eq!(east.remaining(api.charge("alice", 0)).await, 7);
    assert!(east.admits(api.charge("alice", 2)).await);
    assert!(west.admits(api.charge("alice", 4)).await);
    assert_eq!(east.remaining(api.charge("alice", 0)).await, 1);
    assert_eq!(west.remaining(api.charge("alice", 0)).await, 3);
    // As a check, a peek says when the earlier part can pay.
    let decision = east.limiter.peek(api.charge("alice", 3)).await.expect("a decision");
    assert!(!decision.is_allowed());
    let decision = west.limiter.peek(api.charge("alice", 3)).await.expect("a decision");
    assert!(decision.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn both_parts_are_asked_at_the_same_time() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    let delay = Duration::from_millis(20);
    east.store.delay(delay);
    world.home.delay(delay);
    let start = Instant::now();
    assert_eq!(east.remaining(api.charge("alice", 0)).await, 7);
    assert!(start.elapsed() < 2 * delay, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_peek_without_the_home_shows_the_share() {
    for mood in [Mood::Down, Mood::Gone] {
        let (world, api, tiny) = (World::new(2), policy("api", "10/min"), policy("tiny", "1/min"));
        let east = world.region(0);
        world.home.set(mood);
        let decision = east.limiter.peek(api.charge("alice", 1)).await.expect("a decision");
        assert_eq!(decision.source(), Source::Region);
        assert_eq!(east.remaining(api.charge("alice", 1)).await, 3);
        assert!(east.limiter.peek(tiny.charge("alice", 1)).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_reaches_both_parts() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let [east, west] = [world.region(0), world.region(1)];
    assert_eq!(east.drain(&api, "alice").await, 7);
    let found = east.limiter.reset(api.charge("alice", 0)).await;
    assert_eq!(found.expect("both answer"), 1, "one key, in the share and in the pool");
    assert_eq!(east.limiter.reset(api.charge("alice", 0)).await.expect("both answer"), 0);
    assert_eq!(west.drain(&api, "alice").await, 7);
    assert_eq!(east.drain(&api, "alice").await, 3);

    world.home.set(Mood::Down);
    let result = east.limiter.reset(api.charge("alice", 0)).await;
    assert_eq!(effect(result), Effect::Applied, "the share is reset, the pool is not");
    assert_eq!(east.drain(&api, "alice").await, 3);
}

/// The fallback of the region has admitted them, and they are not charged to its store yet.
#[tokio::test(start_paused = true)]
async fn a_reset_finds_the_units_of_the_fallback() {
    let config = RegionsConfig::new(2).share_percent(60);
    let (world, api) = (World::with(2, config, |it| it), policy("api", "10/min"));
    let east = world.region(0);
    east.store.set(Mood::Down);
    assert_eq!(east.receipt(api.charge("alice", 3)).await.source, Source::Fallback);
    east.store.set(Mood::Well);
    assert_eq!(east.limiter.reset(api.charge("alice", 0)).await.expect("both answer"), 1);
    assert_eq!(east.limiter.reset(api.charge("alice", 0)).await.expect("both answer"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_block_reaches_both_parts() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let [east, west] = [world.region(0), world.region(1)];
    let minute = Duration::from_secs(60);
    east.limiter.block(api.charge("alice", 0), minute).await.expect("both answer");
    let denied = east.denial(api.charge("alice", 1)).await;
    assert_eq!(denied.retry_after(), Some(minute));
    assert_eq!(west.drain(&api, "alice").await, 3, "the share of another region is its own");
    assert_eq!(east.limiter.unblock(api.charge("alice", 0)).await.expect("both answer"), 1);
    assert_eq!(east.drain(&api, "alice").await, 7);

    world.home.set(Mood::Down);
    let result = east.limiter.block(api.charge("alice", 0), minute).await;
    assert_eq!(effect(result), Effect::Applied);
    assert!(!east.admits(api.charge("alice", 1)).await);
}

/// The quota of a key is divided like the quota of its policy.
#[tokio::test(start_paused = true)]
async fn the_quota_of_a_key_is_divided() {
    let (world, api) = (World::new(2), policy("api", "100/min"));
    let until = std::time::UNIX_EPOCH + Duration::from_secs(1 << 33);
    api.set_key_quota("alice", Quota::per_minute(10), until).expect("there is room");
    let admitted =
        [world.region(0).drain(&api, "alice").await, world.region(1).drain(&api, "alice").await];
    assert_eq!(admitted, [7, 3], "3 of each share, and 4 of the pool");
    let denial = world.region(1).denial(api.charge("alice", 1)).await;
    assert_eq!(denial.binding().expect("one charge").standing().limit, 10);
}
