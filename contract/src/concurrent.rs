//! Concurrency limits: units are in flight until they are released or expire.

use std::time::Duration;

use plimsoll::{Decision, Policy, Quota, decision::Receipt};

use super::checks::{START, check, remaining};
use crate::{Fixture, micros, policy};

const SECOND: u64 = 1_000_000;

/// Takes units that no guard releases.
async fn take(fixture: &Fixture, policy: &Policy, units: u64) -> Receipt {
    match check(fixture, policy, units).await {
        Decision::Allowed(allowed) => allowed.into_receipt(),
        Decision::Denied(denied) => panic!("refused: {denied:?}"),
    }
}

async fn release(fixture: &Fixture, receipt: Receipt) -> u64 {
    fixture.limiter.hold(receipt).refund().await.expect("an answer")
}

pub async fn units_in_flight_are_bounded(fixture: Fixture) {
    fixture.set(START);
    let jobs = policy("jobs", "3 concurrent expires(30s)");
    let mut held = Vec::new();
    for free in (0..3).rev() {
        held.push(take(&fixture, &jobs, 1).await);
        assert_eq!(remaining(&fixture, &jobs).await, free);
    }
    for step in 1..20 {
        fixture.set(START + step * SECOND);
        assert!(!check(&fixture, &jobs, 1).await.is_allowed());
        assert_eq!(release(&fixture, held.remove(0)).await, 1);
        held.push(take(&fixture, &jobs, 1).await);
    }
    for receipt in held {
        assert_eq!(release(&fixture, receipt).await, 1);
    }
    assert_eq!(remaining(&fixture, &jobs).await, 3);
    let Decision::Denied(denied) = check(&fixture, &jobs, 4).await else { panic!("4 of 3") };
    assert!(denied.is_over_capacity());
}

pub async fn a_lost_unit_expires(fixture: Fixture) {
    let jobs = policy("jobs", "2 concurrent expires(30s)");
    fixture.set(START);
    let _ = take(&fixture, &jobs, 1).await;
    fixture.set(START + 10 * SECOND);
    let _ = take(&fixture, &jobs, 1).await;
    let decision = check(&fixture, &jobs, 1).await;
    let standing = decision.outcomes().next().expect("an outcome").standing();
    assert_eq!(standing.retry_after.map(micros), Some(20 * SECOND));
    fixture.set(START + 30 * SECOND - 1);
    assert!(!check(&fixture, &jobs, 1).await.is_allowed());
    fixture.set(START + 30 * SECOND);
    assert_eq!(remaining(&fixture, &jobs).await, 1);
    fixture.set(START + 40 * SECOND);
    assert_eq!(remaining(&fixture, &jobs).await, 2);
}

/// A unit that has expired is taken by another request, whose unit the late release leaves alone.
pub async fn a_late_release_frees_no_other_unit(fixture: Fixture) {
    let jobs = policy("jobs", "1 concurrent expires(30s)");
    fixture.set(START);
    let late = take(&fixture, &jobs, 1).await;
    fixture.set(START + 30 * SECOND);
    let _ = take(&fixture, &jobs, 1).await;
    assert_eq!(release(&fixture, late).await, 0);
    assert!(!check(&fixture, &jobs, 1).await.is_allowed());
}

/// A unit keeps its expiry when its policy gets a longer one.
pub async fn a_longer_expiry_is_for_new_units(fixture: Fixture) {
    let jobs = policy("jobs", "2 concurrent expires(30s)");
    fixture.set(START);
    let unit = take(&fixture, &jobs, 1).await;
    let quota = Quota::concurrent(2).expires(Duration::from_secs(60)).expect("in bounds");
    jobs.set_quota(quota);
    fixture.set(START + 40 * SECOND);
    assert_eq!(release(&fixture, unit).await, 0);
}

/// Above a limit of 10,000, the times of units are rounded up, and so is the time of their expiry.
pub async fn a_rounded_unit_is_released_until_it_expires(fixture: Fixture) {
    let jobs = policy("jobs", "20000 concurrent expires(30s)");
    fixture.set(START);
    let unit = take(&fixture, &jobs, 1).await;
    fixture.set(START + 30 * SECOND);
    assert_eq!(remaining(&fixture, &jobs).await, 19_999);
    assert_eq!(release(&fixture, unit).await, 1);
}

pub async fn in_flight_and_rate_are_one_check(fixture: Fixture) {
    fixture.set(START);
    let jobs = policy("jobs", "2 concurrent expires(30s)");
    let rate = policy("rate", "3/min");
    // No unit is in flight, and no unit of the rate is spent, if the other refuses.
    for (key, admits) in
        [("alice", true), ("alice", true), ("alice", false), ("bob", true), ("bob", false)]
    {
        let both = [jobs.charge(key, 1), rate.charge("all", 1)];
        let decision = fixture.limiter.check(both).await.expect("an answer");
        assert_eq!(decision.is_allowed(), admits, "{key}");
    }
    let bob = fixture.limiter.peek(jobs.charge("bob", 0)).await.expect("an answer");
    assert_eq!(bob.outcomes().next().expect("an outcome").standing().remaining, 1);
}

pub async fn a_raised_concurrency_acts_at_once(fixture: Fixture) {
    fixture.set(START);
    let jobs = policy("jobs", "2 concurrent expires(30s)");
    let _ = take(&fixture, &jobs, 2).await;
    assert!(!check(&fixture, &jobs, 1).await.is_allowed());
    jobs.set_quota(Quota::concurrent(5));
    assert!(check(&fixture, &jobs, 3).await.is_allowed());
    assert!(!check(&fixture, &jobs, 1).await.is_allowed());
}

pub async fn a_lowered_concurrency_lets_work_end(fixture: Fixture) {
    fixture.set(START);
    let jobs = policy("jobs", "5 concurrent expires(30s)");
    let first = take(&fixture, &jobs, 3).await;
    let second = take(&fixture, &jobs, 2).await;
    jobs.set_quota(Quota::concurrent(2));
    assert_eq!(release(&fixture, second).await, 2);
    assert!(!check(&fixture, &jobs, 1).await.is_allowed());
    assert_eq!(release(&fixture, first).await, 3);
    assert!(check(&fixture, &jobs, 2).await.is_allowed());
    assert!(!check(&fixture, &jobs, 1).await.is_allowed());
}

/// A renewal charges a new unit beyond the limit, and then refunds the old one.
pub async fn a_renewal_keeps_its_unit(fixture: Fixture) {
    let jobs = policy("jobs", "1 concurrent expires(30s)");
    let mut receipt = {
        fixture.set(START);
        take(&fixture, &jobs, 1).await
    };
    for round in 1..10 {
        fixture.set(START + round * 15 * SECOND);
        let renewed = fixture.limiter.penalize(jobs.charge("alice", 1)).await.expect("an answer");
        let old = std::mem::replace(&mut receipt, renewed.into_receipt());
        assert_eq!(release(&fixture, old).await, 1);
        assert!(!check(&fixture, &jobs, 1).await.is_allowed(), "round {round}");
    }
    assert_eq!(release(&fixture, receipt).await, 1);
    assert_eq!(remaining(&fixture, &jobs).await, 1);
}

/// Records of released units leave from the front of the log. An older unit keeps those behind it.
pub async fn an_old_unit_stays_among_many_released(fixture: Fixture) {
    let jobs = Policy::new("jobs", Quota::concurrent(3)).expect("a valid name");
    assert_eq!(jobs.quota().window(), Duration::from_secs(30));
    let mut time = START;
    for length in [0, 1, 2, 7, 8, 9, 40, 41, 42, 50, 100, 300] {
        fixture.set(time);
        let old = take(&fixture, &jobs, 1).await;
        for _ in 0..length {
            time += 10;
            fixture.set(time);
            let young = take(&fixture, &jobs, 2).await;
            assert!(!check(&fixture, &jobs, 1).await.is_allowed());
            assert_eq!(release(&fixture, young).await, 2);
        }
        let younger = take(&fixture, &jobs, 1).await;
        assert_eq!(remaining(&fixture, &jobs).await, 1, "behind {length}");
        assert_eq!(release(&fixture, old).await, 1);
        assert_eq!(remaining(&fixture, &jobs).await, 2, "behind {length}");
        let decision = check(&fixture, &jobs, 3).await;
        let standing = decision.outcomes().next().expect("an outcome").standing();
        assert_eq!(standing.retry_after.map(micros), Some(30 * SECOND), "behind {length}");
        assert_eq!(release(&fixture, younger).await, 1);
        time += 10;
    }
}

pub async fn a_unit_is_released_behind_a_block(fixture: Fixture) {
    fixture.set(START);
    let jobs = policy("jobs", "3 concurrent expires(30s)");
    let held = [take(&fixture, &jobs, 1).await, take(&fixture, &jobs, 1).await];
    fixture.limiter.block(jobs.charge("alice", 1), Duration::from_secs(10)).await.expect("blocked");
    for receipt in held {
        assert_eq!(release(&fixture, receipt).await, 1);
    }
    assert_eq!(remaining(&fixture, &jobs).await, 0);
    fixture.limiter.unblock(jobs.charge("alice", 1)).await.expect("unblocked");
    assert_eq!(remaining(&fixture, &jobs).await, 3);
}
