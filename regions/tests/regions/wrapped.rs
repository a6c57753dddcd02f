//! Regions behind a wrapper, which forwards calls alone, behave as they do alone.

use std::sync::atomic::Ordering::SeqCst;

use plimsoll::{Limiter, Resilience};
use plimsoll_regions::{Regions, RegionsConfig};
use plimsoll_testing::{Counted, policy};

use super::world::{Mood, Remote, World};

/// The regions have breakers, deny caches and leases of their own. A limiter adds none.
#[tokio::test(start_paused = true)]
async fn wrapped_regions_get_no_second_stages() {
    let world = World::new(1);
    let resilience = || Resilience::default().clock(world.clock.clone());
    let (local, home) = (Remote::new(&world.clock), Remote::new(&world.clock));
    let config = RegionsConfig::new(1).share_percent(100).resilience(resilience());
    let regions = Regions::new(local.clone(), home, config).expect("valid");
    let wrapped = Counted::new(regions);
    let requests = wrapped.requests();
    let limiter = Limiter::with_resilience(wrapped, resilience());
    let api = policy("api", "10/min");
    assert!(limiter.check(api.charge("alice", 10)).await.expect("a decision").is_allowed());
    for number in 2..=5 {
        assert!(!limiter.check(api.charge("alice", 1)).await.expect("a decision").is_allowed());
        assert_eq!(requests.load(SeqCst), number, "no other cache answers");
    }
    assert_eq!(local.checks(), 1, "the cache of the regions answers: the first check left nothing");

    assert!(limiter.status().home.is_some(), "{:?}", limiter.status());
    local.set(Mood::Down);
    for number in 6..=40 {
        let _ = limiter.check(api.charge(format!("k{number}"), 1)).await;
        assert_eq!(requests.load(SeqCst), number, "no other breaker opens");
    }
    assert_eq!(limiter.status().open_breakers, 1, "{:?}", limiter.status());
    limiter.close().await.expect("closed");
}
