//! A check that goes alone allocates at most six times between `Limiter::check` and the bytes on the wire: its call,
//! the future of the store, three buffers and the way back. One that is queued allocates at most four times, with
//! its part of the batch. A check that leased units pay does not allocate.
#![cfg(feature = "redis")]

use std::{pin::pin, time::Duration};

use plimsoll::{Limiter, Policy, RedisStore, Resilience, policy::Charges, store::Source};
use plimsoll_testing::{alone, servers::Server};
use stats_alloc::Region;
use tokio::task::yield_now;

use crate::ALLOCATOR;

/// Returns the allocations of a check until its bytes are on the wire.
async fn allocations_until_sent<'p>(limiter: &Limiter, charges: impl Fn() -> Charges<'p>) -> usize {
    let mut counts = Vec::new();
    for _ in 0..50 {
        let charges = charges();
        let region = Region::new(ALLOCATOR);
        let mut check = pin!(limiter.check(charges));
        assert!(futures_util::poll!(&mut check).is_pending());
        // The connection's task writes the command.
        yield_now().await;
        counts.push(region.change().allocations);
        assert!(check.await.expect("an answer").is_allowed());
    }
    // The buffers of the first checks are used again by the later ones. The test harness and the
    // channel to the connection allocate now and then.
    counts.sort_unstable();
    counts[counts.len() / 2]
}

/// Returns the allocations of a check that waits in the queue behind a call in flight, until the batch of
/// 50 checks is on the wire.
async fn allocations_of_queued(limiter: &Limiter, policy: &Policy) -> usize {
    const QUEUED: usize = 50;
    let mut counts = Vec::new();
    for _ in 0..50 {
        let mut first = pin!(limiter.check(policy.charge("alice", 1)));
        assert!(futures_util::poll!(&mut first).is_pending());
        let mut queued: Vec<_> =
            (0..QUEUED as u64).map(|key| Box::pin(limiter.check(policy.charge(key, 1)))).collect();
        let region = Region::new(ALLOCATOR);
        for check in &mut queued {
            assert!(futures_util::poll!(check).is_pending());
        }
        assert!(first.await.expect("an answer").is_allowed());
        // The task of the batch sends it, and the task of the connection writes it.
        yield_now().await;
        yield_now().await;
        counts.push(region.change().allocations.div_ceil(QUEUED));
        for check in queued {
            assert!(check.await.expect("an answer").is_allowed());
        }
    }
    counts.sort_unstable();
    counts[counts.len() / 2]
}

/// Returns how many of 1000 checks that leased units pay allocate more than their box. Some of them start a renewal.
async fn allocating_checks_from_stock(limiter: &Limiter, policy: &Policy) -> usize {
    let mut allocating = 0;
    let mut from_stock = 0;
    while from_stock < 1_000 {
        let region = Region::new(ALLOCATOR);
        let decision = limiter.check(policy.charge("alice", 1)).await.expect("an answer");
        let allocations = region.change().allocations;
        if decision.source() == Source::Leased {
            from_stock += 1;
            // The check itself is in a box.
            allocating += usize::from(allocations > 1);
        }
        // The tasks of the renewals and of the connection run.
        yield_now().await;
    }
    allocating
}

#[tokio::test]
async fn checks_allocate_seldom() {
    if !alone("redis::checks_allocate_seldom") {
        return;
    }
    let server = Server::start();
    let policies: Vec<Policy> = ["first", "second", "third"]
        .map(|name| Policy::new(name, "1000000/s token-bucket(1000000)").unwrap())
        .into();
    let store = RedisStore::connect(&server.url()).await.expect("a store");
    // For several charges the fallback keeps a copy that does not fit in place, and the deny cache
    // one of its keys.
    for (resilience, limit_for_three, name) in
        [(Resilience::none(), 8, "without resilience"), (Resilience::default(), 10, "by default")]
    {
        let limiter = Limiter::with_resilience(store.clone(), resilience);
        let one = allocations_until_sent(&limiter, || policies[0].charge("alice", 1).into()).await;
        let three = allocations_until_sent(&limiter, || {
            policies.iter().map(|policy| policy.charge("alice", 1)).collect()
        })
        .await;
        let queued = allocations_of_queued(&limiter, &policies[0]).await;
        eprintln!(
            "{name}: {one} allocations for one charge, {three} for three, {queued} for a queued one"
        );
        assert!(queued <= 5, "{name}: {queued} allocations for a queued check");
        assert!(one <= 8, "{name}: {one} allocations for one charge");
        assert!(three <= limit_for_three, "{name}: {three} allocations for three charges");
    }

    let leased = "100000000/h token-bucket(10000000) leased(60s)";
    let leased = Policy::new("leased", leased).unwrap();
    let patient = Resilience::default().deadline(Duration::from_secs(30)).without_breaker();
    let limiter = Limiter::with_resilience(store, patient);
    let allocating = allocating_checks_from_stock(&limiter, &leased).await;
    eprintln!("{allocating} of 1000 checks from stock allocate more");
    assert!(allocating < 50, "{allocating} of 1000 checks from stock allocate more");
}
