//! Checks while both stores answer.

use std::time::Duration;

use plimsoll::{
    Algorithm, Policy, Quota, RateLimitLayer, Resilience, Rule,
    store::{Source, Verdict},
};
use plimsoll_regions::RegionsConfig;
use plimsoll_testing::{algorithms::with_parameters, policy};

use super::world::{Mood, World};

const MICRO: Duration = Duration::from_micros(1);

#[tokio::test(start_paused = true)]
async fn each_region_has_its_share_and_all_have_the_pool() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let [east, west] = [world.region(0), world.region(1)];
    assert_eq!(east.drain(&api, "alice").await, 7, "its share of 3, and the pool of 4");
    assert_eq!(west.drain(&api, "alice").await, 3, "its share");
    assert_eq!(east.drain(&api, "bob").await + west.drain(&api, "bob").await, 10);
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(west.drain(&api, "alice").await, 7);
    assert_eq!(east.drain(&api, "alice").await, 3);
}

#[tokio::test(start_paused = true)]
async fn the_home_is_not_asked_while_the_share_lasts() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    for _ in 0..3 {
        assert!(world.region(0).admits(api.charge("alice", 1)).await);
    }
    assert_eq!(world.home.checks(), 0);
    assert!(world.region(0).admits(api.charge("alice", 1)).await);
    assert_eq!(world.home.checks(), 1);
}

/// Each algorithm, with 10 units for a window of 12 s.
fn policies() -> impl Iterator<Item = Policy> {
    Algorithm::EACH.iter().map(|algorithm| {
        let algorithm = with_parameters(*algorithm, 6, 10);
        let quota = Quota::new(10, Duration::from_secs(12), algorithm);
        Policy::new(algorithm.name(), quota.expect("valid")).expect("valid")
    })
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_is_divided() {
    let world = World::new(2);
    // The beginning of a window.
    world.clock.set(1_700_000_004_000_000);
    for policy in policies() {
        assert_eq!(world.region(0).drain(&policy, "alice").await, 7, "{policy:?}");
        assert_eq!(world.region(1).drain(&policy, "alice").await, 3, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_denial_is_the_shorter_one_of_share_and_pool() {
    for policy in policies() {
        for (cost, pool_first) in [(1, true), (1, false), (2, true), (3, false), (4, true)] {
            let world = World::new(2);
            let east = world.region(0);
            world.clock.set(1_700_000_004_000_000);
            // The pool is spent 1 s before the share, or after it.
            if pool_first {
                assert!(world.region(1).admits(policy.charge("alice", 3)).await);
                assert!(world.region(1).admits(policy.charge("alice", 4)).await);
                world.clock.advance(Duration::from_secs(1));
                assert!(east.admits(policy.charge("alice", 3)).await);
            } else {
                assert!(east.admits(policy.charge("alice", 3)).await);
                world.clock.advance(Duration::from_secs(1));
                assert!(world.region(1).admits(policy.charge("alice", 3)).await);
                while world.region(1).admits(policy.charge("alice", 1)).await {}
            }
            let wait = loop {
                let decision = east.check(policy.charge("alice", cost)).await;
                // `None` if a bucket has refilled meanwhile.
                if let Some(wait) = decision.binding().expect("one charge").standing().retry_after {
                    break wait;
                }
            };
            world.clock.advance(wait - MICRO);
            assert!(
                !east.admits(policy.charge("alice", cost)).await,
                "{policy:?} {cost}: too early"
            );
            world.clock.advance(MICRO);
            assert!(east.admits(policy.charge("alice", cost)).await, "{policy:?} {cost}: {wait:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_paid_by_one_part() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    assert!(east.admits(api.charge("alice", 4)).await, "the pool");
    assert!(!east.admits(api.charge("alice", 4)).await, "the share has 3");
    assert!(east.admits(api.charge("alice", 3)).await);
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_larger_part_never_passes() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    let denied = east.denial(api.charge("alice", 5)).await;
    assert_eq!(denied.binding().expect("one charge").verdict(), Verdict::OverCapacity);
    assert_eq!(denied.retry_after(), None);
    // The pool can pay 4, but not now.
    assert!(world.region(1).admits(api.charge("alice", 4)).await);
    let denied = east.denial(api.charge("alice", 4)).await;
    assert_eq!(denied.binding().expect("one charge").verdict(), Verdict::Refused);
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
}

#[tokio::test(start_paused = true)]
async fn a_denial_gives_back_what_the_other_charges_of_its_check_have_spent() {
    let (world, east_only) = (World::new(2), policy("east-only", "10/min"));
    let [east, west] = [world.region(0), world.region(1)];
    let (a, b, tiny) = (policy("a", "10/min"), policy("b", "10/min"), policy("tiny", "1/min"));
    // The share of `a` is spent, and everything of `b`.
    assert!(east.admits(a.charge("alice", 3)).await);
    assert_eq!(east.drain(&b, "alice").await, 7);
    let denied = east
        .denial([a.charge("alice", 1), b.charge("alice", 1), east_only.charge("alice", 1)])
        .await;
    let verdicts: Vec<_> = denied.outcomes().map(|it| it.verdict()).collect();
    assert_eq!(verdicts, [Verdict::Passed, Verdict::Refused, Verdict::Passed]);
    assert_eq!(world.home.spent(&a, "alice", "4/min"), 0);
    assert_eq!(east.store.spent(&east_only, "alice", "3/min"), 0);

    // A quota of the pool alone denies after the share has spent the rest.
    assert!(west.admits(tiny.charge("alice", 1)).await);
    assert!(!east.admits([east_only.charge("alice", 2), tiny.charge("alice", 1)]).await);
    assert_eq!(east.store.spent(&east_only, "alice", "3/min"), 0);
    assert!(east.admits(east_only.charge("alice", 3)).await);
}

#[tokio::test(start_paused = true)]
async fn the_charges_of_a_check_may_be_paid_by_different_parts() {
    let (world, a, b) = (World::new(2), policy("a", "10/min"), policy("b", "10/min"));
    let east = world.region(0);
    assert!(east.admits(a.charge("alice", 3)).await);
    assert!(east.admits([a.charge("alice", 1), b.charge("alice", 1)]).await);
    assert_eq!(world.home.spent(&a, "alice", "4/min"), 1);
    assert_eq!(world.home.spent(&b, "alice", "4/min"), 0);
    assert_eq!(east.store.spent(&b, "alice", "3/min"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_quota_too_small_to_share_belongs_to_the_pool() {
    let (world, tiny) = (World::new(2), policy("tiny", "3/min"));
    assert!(world.region(0).admits(tiny.charge("alice", 2)).await);
    assert!(!world.region(1).admits(tiny.charge("alice", 2)).await);
    assert!(world.region(1).admits(tiny.charge("alice", 1)).await);
    assert_eq!(world.region(0).store.checks() + world.region(1).store.checks(), 0);
}

#[tokio::test(start_paused = true)]
async fn shares_of_the_whole_quota_leave_no_pool() {
    let config = RegionsConfig::new(2).share_percent(100);
    let (world, api) =
        (World::with(2, config, Resilience::without_fallback), policy("api", "10/min"));
    assert_eq!(world.region(0).drain(&api, "alice").await, 5);
    assert_eq!(world.region(1).drain(&api, "alice").await, 5);
    assert_eq!(world.home.checks(), 0);
}

#[tokio::test(start_paused = true)]
async fn as_many_units_are_taken_as_one_part_has() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    let mut granted = Vec::new();
    for _ in 0..2 {
        let decision = east.check(api.charge("alice", 1).up_to(10)).await;
        granted.push(decision.outcomes().next().expect("one charge").granted());
    }
    assert_eq!(granted, [3, 4]);
    assert!(!east.admits(api.charge("alice", 1).up_to(10)).await);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_is_decided_by_the_part_that_is_asked_first() {
    let (world, live, shadow) =
        (World::new(2), policy("live", "100/min"), policy("shadow", "10/min"));
    let east = world.region(0);
    let mut verdicts = Vec::new();
    for _ in 0..5 {
        let decision =
            east.check([live.charge("alice", 1), shadow.charge("alice", 1).shadow()]).await;
        assert!(decision.is_allowed());
        verdicts.push(decision.outcomes().nth(1).expect("two charges").verdict());
    }
    let (passed, refused) = (Verdict::Passed, Verdict::Refused);
    assert_eq!(verdicts, [passed, passed, passed, refused, refused]);
    assert_eq!(world.home.checks(), 0);
}

/// A trial is paid by the share of its region and then by the pool, as a live charge is.
#[tokio::test(start_paused = true)]
async fn a_trial_is_counted_as_a_live_charge() {
    let world = World::new(2);
    let [east, west] = [world.region(0), world.region(1)];
    let (live, trial) = (policy("live", "10/min"), policy("trial", "20/min"));
    let mut granted = 0;
    for _ in 0..20 {
        let charges = [trial.charge("alice", 1).trial(), live.charge("alice", 1)];
        granted += east.check(charges).await.outcomes().next().expect("the trial").granted();
    }
    // Shares of 30%, and a pool of 40%: this region can have 14 of the 20 units, and 7 of the 10.
    assert_eq!(granted, 14);
    let counts = trial.trial_counts();
    assert_eq!((counts.allowed_by_both, counts.allowed_by_trial_only), (7, 7));
    assert_eq!((counts.allowed_by_live_only, counts.denied_by_both), (0, 6));
    assert_eq!(west.drain(&trial, "alice").await, 6, "the share of the other region");
    world.clock.advance(Duration::from_secs(60));
    // An admitted check refunds its trial to the part that has paid it.
    for _ in 0..20 {
        let charges = [live.charge("bob", 0), trial.charge("bob", 1).trial()];
        let receipt = east.receipt(charges).await;
        assert_eq!(east.limiter.hold(receipt).refund().await.expect("an answer"), 1);
    }
    // Without the home store, the share decides both.
    world.home.set(Mood::Down);
    let charges = [live.charge("carol", 1), trial.charge("carol", 1).trial()];
    assert!(east.check(charges).await.is_allowed());
    assert_eq!(trial.trial_counts().allowed_by_both, 28);
}

/// A trial that is stricter than the live charge neither denies a check nor changes what the check spends.
#[tokio::test(start_paused = true)]
async fn a_refused_trial_changes_nothing_for_the_live_charge() {
    for (home, admitted) in [(Mood::Well, 70), (Mood::Down, 30)] {
        let world = World::new(2);
        let east = world.region(0);
        let (live, trial) = (policy("live", "100/min"), policy("trial", "10/min"));
        world.home.set(home);
        for number in 0..admitted {
            let charges = [trial.charge("alice", 1).trial(), live.charge("alice", 1)];
            let decision = east.check(charges).await;
            assert!(decision.is_allowed(), "{number}");
            let live = decision.outcomes().nth(1).expect("the live charge");
            assert_eq!(live.granted(), 1, "{number}");
        }
        assert_eq!(east.drain(&live, "alice").await, 0, "{admitted} of a region's units are spent");
        let charges = [trial.charge("bob", 10).trial(), live.charge("bob", 1)];
        let receipt = east.receipt(charges).await;
        assert_eq!(east.limiter.hold(receipt).refund().await.expect("an answer"), 1);
        let left = east.drain(&live, "bob").await;
        assert_eq!(left, admitted, "the unit of the live charge was refunded");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_limit_is_divided_at_once() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let [east, west] = [world.region(0), world.region(1)];
    assert_eq!(east.drain(&api, "alice").await, 7);
    api.set_quota(Quota::per_minute(20));
    // Shares of 6, and a pool of 8. What was spent stays spent.
    assert_eq!(east.drain(&api, "alice").await, 7);
    assert_eq!(west.drain(&api, "alice").await, 6);
    api.set_quota(Quota::per_minute(10));
    assert!(!east.admits(api.charge("alice", 1)).await);
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(west.drain(&api, "alice").await + east.drain(&api, "alice").await, 10);
}

#[tokio::test(start_paused = true)]
async fn decisions_show_the_limit_of_the_whole_quota() {
    let (world, api) = (World::new(2), policy("api", "10/min"));
    let east = world.region(0);
    for (cost, remaining) in [(1, 2), (2, 0), (1, 3)] {
        let decision = east.check(api.charge("alice", cost)).await;
        let standing = *decision.binding().expect("one charge").standing();
        assert_eq!((standing.limit, standing.remaining), (10, remaining), "after {cost}");
        assert_eq!(decision.source(), Source::Shared);
    }
    let denied = east.denial(api.charge("alice", 4)).await;
    assert_eq!(
        (
            denied.binding().expect("one charge").standing().limit,
            denied.binding().expect("one charge").standing().remaining
        ),
        (10, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn headers_show_the_limit_of_the_whole_quota() {
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    let (world, api) = (World::new(2), policy("api", "10/min"));
    let layer = RateLimitLayer::new(
        world.region(0).limiter.clone(),
        Rule::new(api, |_: &http::request::Parts| "alice"),
    );
    for remaining in [2, 1, 0, 3] {
        let service = ServiceBuilder::new().layer(layer.clone()).service(service_fn(async |_| {
            Ok::<_, std::convert::Infallible>(http::Response::new(axum::body::Body::empty()))
        }));
        let request = http::Request::new(axum::body::Body::empty());
        let response = service.oneshot(request).await.expect("infallible");
        let header = |name: &str| response.headers()[name].to_str().expect("text").to_owned();
        assert_eq!(header("ratelimit-policy"), "\"api\";q=10;w=60");
        assert!(header("ratelimit").starts_with(&format!("\"api\";r={remaining};")), "{remaining}");
    }
}

#[tokio::test]
async fn the_description_names_both_stores() {
    let world = World::new(2);
    let description = format!("{:?}", world.region(0).limiter);
    assert!(description.contains("60% for 2 regions"), "{description}");
}

#[test]
fn a_configuration_that_is_out_of_range_is_an_error_with_the_range() {
    use plimsoll::{MemoryStore, memory::MemoryConfig};
    use plimsoll_regions::Regions;

    let store = || MemoryStore::new(MemoryConfig::default());
    let error =
        |config| Regions::new(store(), store(), config).expect_err("out of range").to_string();
    assert_eq!(
        error(RegionsConfig::new(0)),
        "RegionsConfig::new is 0, allowed is 1 region or more"
    );
    let percent = RegionsConfig::new(2).share_percent(101);
    assert_eq!(error(percent), "RegionsConfig::share_percent is 101, allowed is 0 to 100");
}
