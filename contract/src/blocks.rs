//! Penalties and blocks.

use std::time::Duration;

use plimsoll::{
    Decision, Policy, Quota, decision::Standing, error::ErrorKind, policy::Charges, store::Verdict,
};

use super::checks::{START, check, each_algorithm, remaining};
use crate::{Fixture, hold, policy};

const SECOND: u64 = 1_000_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn block(fixture: &Fixture, policy: &Policy, duration: Duration) {
    fixture.limiter.block(policy.charge("alice", 1), duration).await.expect("an answer");
}

/// The standing for a charge of `cost`, without spending it.
async fn standing(fixture: &Fixture, policy: &Policy, cost: u64) -> Standing {
    let decision = fixture.limiter.peek(policy.charge("alice", cost)).await.expect("an answer");
    *decision.outcomes().next().expect("an outcome").standing()
}

pub async fn a_penalty_spends_beyond_the_limit(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        let first = fixture.limiter.penalize(policy.charge("alice", 4)).await.expect("an answer");
        assert_eq!(first.remaining(), Some(6));
        let charges = [policy.charge("alice", 5), policy.charge("alice", 4)];
        let second = fixture.limiter.penalize(charges).await.expect("an answer");
        let outcome = second.outcomes().next().expect("one charge, summed");
        assert_eq!((outcome.granted(), outcome.standing().remaining), (9, 0), "{policy:?}");
        assert!(!check(&fixture, policy, 1).await.is_allowed());
        // 13 units are spent, so at least 3 have to come back before one is free.
        let wait = standing(&fixture, policy, 1).await.retry_after.expect("refused");
        fixture.set(START + wait.as_micros() as u64 - 1);
        assert!(!check(&fixture, policy, 1).await.is_allowed());
        fixture.set(START + wait.as_micros() as u64);
        assert!(check(&fixture, policy, 1).await.is_allowed());
        fixture.set(START);
    }
}

pub async fn a_penalty_can_be_refunded(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        let charged = fixture.limiter.penalize(policy.charge("alice", 12)).await.expect("charged");
        assert_eq!(remaining(&fixture, policy).await, 0);
        let refunded = fixture.limiter.hold(charged.into_receipt()).refund().await;
        assert_eq!(refunded.expect("an answer"), 12);
        assert_eq!(remaining(&fixture, policy).await, 10);
    }
}

pub async fn a_penalty_of_a_bucket_is_at_most_a_burst_and_a_limit(fixture: Fixture) {
    fixture.set(START);
    let bucket = policy("bucket", "10/s token-bucket(5)");
    fixture.limiter.penalize(bucket.charge("alice", 1_000_000)).await.expect("an answer");
    let standing = standing(&fixture, &bucket, 1).await;
    assert_eq!(standing.retry_after, Some(Duration::from_millis(1_100)), "15 units of debt");
}

pub async fn a_block_refuses_until_it_ends(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        assert!(check(&fixture, policy, 3).await.is_allowed());
        block(&fixture, policy, seconds(900)).await;
        fixture.set(START + SECOND / 2);
        let Decision::Denied(denied) = check(&fixture, policy, 2).await else { panic!("blocked") };
        let rest = seconds(900) - Duration::from_millis(500);
        assert_eq!(denied.retry_after(), Some(rest), "{policy:?}");
        let standing = *denied.binding().expect("a reason").standing();
        assert_eq!((standing.limit, standing.remaining), (10, 0));
        assert_eq!((standing.next_after, standing.reset_after), (rest, rest));
        // The refused charge has spent nothing, and the units that were spent before have come back.
        fixture.set(START + 900 * SECOND - 1);
        assert!(!check(&fixture, policy, 1).await.is_allowed());
        fixture.set(START + 900 * SECOND);
        assert!(check(&fixture, policy, 10).await.is_allowed(), "{policy:?}");
        assert!(!check(&fixture, policy, 1).await.is_allowed());
        fixture.set(START);
    }
}

pub async fn a_block_of_a_key_that_has_spent_nothing(fixture: Fixture) {
    for policy in &each_algorithm(10) {
        fixture.set(START);
        block(&fixture, policy, seconds(5)).await;
        assert_eq!(remaining(&fixture, policy).await, 0);
        fixture.set(START + 5 * SECOND);
        assert_eq!(standing(&fixture, policy, 1).await.remaining, 10);
        let held = hold(&fixture.limiter, policy.charge("alice", 7)).await;
        assert_eq!(remaining(&fixture, policy).await, 3);
        assert_eq!(held.refund().await.expect("an answer"), 7);
    }
}

pub async fn a_block_waits_for_the_later_of_its_end_and_the_algorithm(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        assert!(check(&fixture, policy, 10).await.is_allowed());
        let open = standing(&fixture, policy, 10).await;
        block(&fixture, policy, Duration::from_millis(1)).await;
        let blocked = standing(&fixture, policy, 10).await;
        assert_eq!(blocked, open, "{policy:?}: the algorithm's waits are longer");
        let wait = open.retry_after.expect("refused").as_micros() as u64;
        block(&fixture, policy, Duration::from_micros(wait + 1)).await;
        let later = standing(&fixture, policy, 10).await.retry_after.expect("refused");
        assert_eq!(later.as_micros() as u64, wait + 1, "{policy:?}");
    }
}

pub async fn a_block_is_one_of_a_policy_and_a_key(fixture: Fixture) {
    fixture.set(START);
    let policies = each_algorithm(10);
    block(&fixture, &policies[0], seconds(60)).await;
    let bob = fixture.limiter.check(policies[0].charge("bob", 1)).await.expect("an answer");
    assert!(bob.is_allowed());
    for policy in &policies[1..] {
        assert!(check(&fixture, policy, 1).await.is_allowed(), "{policy:?}");
    }
}

pub async fn the_later_of_two_blocks_ends(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        for (duration, rest) in [(60, 60), (30, 60), (61, 61), (61, 61)] {
            block(&fixture, policy, seconds(duration)).await;
            let wait = standing(&fixture, policy, 1).await.retry_after;
            assert_eq!(wait, Some(seconds(rest)), "{policy:?}");
        }
    }
}

pub async fn unblock_lifts_a_block_and_keeps_the_units(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        let charge = policy.charge("alice", 1);
        fixture.limiter.unblock(charge.clone()).await.expect("nothing to lift");
        assert_eq!(remaining(&fixture, policy).await, 10);
        block(&fixture, policy, seconds(60)).await;
        fixture.limiter.unblock(charge.clone()).await.expect("an answer");
        assert_eq!(remaining(&fixture, policy).await, 10, "{policy:?}");
        let held = hold(&fixture.limiter, policy.charge("alice", 4)).await;
        block(&fixture, policy, seconds(60)).await;
        fixture.limiter.unblock(charge.clone()).await.expect("an answer");
        assert_eq!(remaining(&fixture, policy).await, 6, "{policy:?}");
        assert_eq!(held.refund().await.expect("an answer"), 4);
        assert!(check(&fixture, policy, 10).await.is_allowed());
    }
}

/// A block, its lift and a reset say whether they have met a key, whatever the store still keeps of it.
pub async fn the_keys_that_were_found_are_counted(fixture: Fixture) {
    let limiter = &fixture.limiter;
    for policy in &each_algorithm(10) {
        fixture.set(START);
        let charge = policy.charge("alice", 1);
        assert_eq!(limiter.reset(charge.clone()).await.expect("an answer"), 0, "{policy:?}");
        assert_eq!(limiter.unblock(charge.clone()).await.expect("an answer"), 0);
        assert_eq!(limiter.block(charge.clone(), seconds(900)).await.expect("an answer"), 0);
        assert_eq!(limiter.unblock(charge.clone()).await.expect("an answer"), 1, "{policy:?}");
        assert_eq!(limiter.unblock(charge.clone()).await.expect("an answer"), 0);
        assert_eq!(limiter.reset(charge.clone()).await.expect("an answer"), 0, "nothing was spent");

        assert!(check(&fixture, policy, 1).await.is_allowed());
        assert_eq!(
            limiter.unblock(charge.clone()).await.expect("an answer"),
            0,
            "spent, not blocked"
        );
        assert_eq!(
            limiter.block(charge.clone(), seconds(900)).await.expect("an answer"),
            1,
            "{policy:?}"
        );
        assert_eq!(limiter.reset(charge.clone()).await.expect("an answer"), 1, "{policy:?}");
        assert_eq!(limiter.reset(charge.clone()).await.expect("an answer"), 0);

        assert_eq!(limiter.block(charge.clone(), seconds(900)).await.expect("an answer"), 0);
        assert_eq!(limiter.block(charge.clone(), seconds(60)).await.expect("an answer"), 1);
        assert_eq!(limiter.reset(charge.clone()).await.expect("an answer"), 1, "a blocked key");

        // Neither a charge that has left the window nor a block that is over is found.
        assert!(check(&fixture, policy, 1).await.is_allowed());
        limiter.block(policy.charge("bob", 1), seconds(900)).await.expect("an answer");
        fixture.set(START + 900 * SECOND);
        assert_eq!(limiter.reset(charge.clone()).await.expect("an answer"), 0, "{policy:?}");
        assert_eq!(limiter.unblock(policy.charge("bob", 1)).await.expect("an answer"), 0);
        assert_eq!(limiter.reset(policy.charge("bob", 1)).await.expect("an answer"), 0);
    }
    let [one, other] = &each_algorithm(10)[..2] else { panic!("five algorithms") };
    assert!(check(&fixture, one, 1).await.is_allowed());
    let charges = [one.charge("alice", 1), other.charge("alice", 1), other.charge("carol", 1)];
    assert_eq!(limiter.block(charges.clone(), seconds(900)).await.expect("an answer"), 1);
    assert_eq!(limiter.reset(charges).await.expect("an answer"), 3);
}

pub async fn reset_lifts_a_block(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        assert!(check(&fixture, policy, 10).await.is_allowed());
        block(&fixture, policy, seconds(60)).await;
        fixture.limiter.reset(policy.charge("alice", 1)).await.expect("an answer");
        assert!(check(&fixture, policy, 10).await.is_allowed(), "{policy:?}");
    }
}

pub async fn several_keys_are_blocked_in_one_call(fixture: Fixture) {
    fixture.set(START);
    let policies = each_algorithm(10);
    let charges = policies.iter().flat_map(|policy| {
        [policy.charge("alice", 1), policy.charge("bob", 1), policy.charge("bob", 1).shadow()]
    });
    let charges: Charges<'_> = charges.collect();
    fixture.limiter.block(charges.clone(), seconds(60)).await.expect("an answer");
    let blocked = fixture.limiter.peek(charges.clone()).await.expect("an answer");
    assert!(blocked.outcomes().all(|it| it.verdict() == Verdict::Refused));
    assert_eq!(blocked.outcomes().count(), 3 * policies.len());
    fixture.limiter.unblock(charges.clone()).await.expect("an answer");
    let lifted = fixture.limiter.peek(charges).await.expect("an answer");
    assert!(lifted.outcomes().all(|it| it.verdict() != Verdict::Refused));
}

pub async fn a_blocked_charge_denies_its_check(fixture: Fixture) {
    fixture.set(START);
    let policies = each_algorithm(10);
    for blocked in &policies {
        block(&fixture, blocked, seconds(60)).await;
        let charges: Charges<'_> = policies.iter().map(|it| it.charge("alice", 2)).collect();
        let Decision::Denied(denied) = fixture.limiter.check(charges).await.expect("an answer")
        else {
            panic!("one is blocked")
        };
        assert_eq!(denied.binding().expect("a reason").charge().policy(), blocked);
        assert_eq!(denied.retry_after(), Some(seconds(60)));
        fixture.limiter.unblock(blocked.charge("alice", 1)).await.expect("an answer");
    }
    for policy in &policies {
        assert_eq!(remaining(&fixture, policy).await, 10, "{policy:?}: all or nothing");
    }
}

pub async fn a_blocked_shadow_is_refused_and_denies_nothing(fixture: Fixture) {
    fixture.set(START);
    let live = policy("live", "10/s");
    for policy in &each_algorithm(10) {
        block(&fixture, policy, seconds(60)).await;
        let charges = [live.charge(policy.name(), 1), policy.charge("alice", 1).shadow()];
        let decision = fixture.limiter.check(charges).await.expect("an answer");
        assert!(decision.is_allowed());
        let shadow = decision.outcomes().nth(1).expect("two charges");
        assert_eq!((shadow.verdict(), shadow.granted()), (Verdict::Refused, 0), "{policy:?}");
        assert_eq!(shadow.standing().retry_after, Some(seconds(60)));
    }
}

pub async fn cost_0_passes_a_block(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        block(&fixture, policy, seconds(60)).await;
        let charge = policy.charge("alice", 0).up_to(5);
        let decision = fixture.limiter.check(charge).await.expect("an answer");
        let outcome = decision.outcomes().next().expect("an outcome");
        assert_eq!((outcome.verdict(), outcome.granted()), (Verdict::Passed, 0), "{policy:?}");
        assert_eq!(outcome.standing().remaining, 0);
    }
}

pub async fn a_block_keeps_over_capacity(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        block(&fixture, policy, seconds(60)).await;
        let decision = check(&fixture, policy, 11).await;
        let outcome = decision.outcomes().next().expect("an outcome");
        assert_eq!(outcome.verdict(), Verdict::OverCapacity);
        assert_eq!(outcome.standing().retry_after, None);
    }
}

pub async fn forced_units_and_refunds_count_behind_a_block(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        let held = hold(&fixture.limiter, policy.charge("alice", 4)).await;
        let kept = hold(&fixture.limiter, policy.charge("alice", 2)).await;
        block(&fixture, policy, seconds(60)).await;
        assert_eq!(held.refund().await.expect("an answer"), 4, "{policy:?}");
        kept.settle(5).await.expect("an answer");
        let charged = fixture.limiter.penalize(policy.charge("alice", 1)).await.expect("charged");
        assert_eq!(charged.remaining(), Some(0), "{policy:?}");
        fixture.limiter.unblock(policy.charge("alice", 1)).await.expect("an answer");
        assert_eq!(remaining(&fixture, policy).await, 4, "{policy:?}");
        block(&fixture, policy, seconds(60)).await;
        let refunded = fixture.limiter.hold(charged.into_receipt()).refund().await;
        assert_eq!(refunded.expect("an answer"), 1, "{policy:?}");
        fixture.limiter.reset(policy.charge("alice", 1)).await.expect("an answer");
    }
}

/// More records than are read at once, before the block and behind it.
pub async fn a_long_log_is_kept_behind_a_block(fixture: Fixture) {
    let long = policy("long", "1000/min");
    let mut held = Vec::new();
    for time in 0..200 {
        if time == 100 {
            block(&fixture, &long, seconds(10)).await;
        }
        fixture.set(START + time);
        let penalty = fixture.limiter.penalize(long.charge("alice", 1)).await;
        held.push(fixture.limiter.hold(penalty.expect("an answer").into_receipt()));
    }
    for index in [150, 120, 90, 10] {
        assert_eq!(held.swap_remove(index).refund().await.expect("an answer"), 1);
    }
    // The waits search the log behind the block, and end when the unit does that makes room.
    for (cost, leaves) in [(805, 0), (855, 51), (950, 148), (1_000, 199)] {
        let wait = standing(&fixture, &long, cost).await.retry_after.expect("refused");
        let time = (START + 199) + wait.as_micros() as u64;
        assert_eq!(time, START + leaves + 60 * SECOND, "{cost}");
    }
    fixture.set(START + 10 * SECOND + 99);
    assert_eq!(standing(&fixture, &long, 1).await.remaining, 804);
    assert!(check(&fixture, &long, 4).await.is_allowed());
    assert_eq!(held.swap_remove(100).refund().await.expect("an answer"), 1);
    assert_eq!(remaining(&fixture, &long).await, 801);
}

pub async fn a_change_of_the_quota_keeps_a_block(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        assert!(check(&fixture, policy, 4).await.is_allowed());
        block(&fixture, policy, seconds(60)).await;
        let quota = policy.quota();
        let raised = plimsoll::Quota::new(20, quota.window(), quota.algorithm());
        policy.set_quota(raised.expect("valid"));
        assert!(!check(&fixture, policy, 1).await.is_allowed(), "{policy:?}");
        fixture.limiter.unblock(policy.charge("alice", 1)).await.expect("an answer");
        let expected = policy.quota().capacity() - 4;
        assert_eq!(remaining(&fixture, policy).await, expected, "{policy:?}");
    }
}

/// The rest is never longer than the block was made for.
pub async fn a_clock_set_back_does_not_lengthen_a_block(fixture: Fixture) {
    for policy in &each_algorithm(10) {
        fixture.set(START);
        block(&fixture, policy, seconds(900)).await;
        fixture.set(START - 3_600 * SECOND);
        assert_eq!(standing(&fixture, policy, 1).await.retry_after, Some(seconds(900)));
        fixture.set(START - 3_600 * SECOND + 900 * SECOND - 1);
        assert!(!check(&fixture, policy, 1).await.is_allowed(), "{policy:?}");
        fixture.set(START - 3_600 * SECOND + 900 * SECOND);
        assert!(check(&fixture, policy, 1).await.is_allowed(), "{policy:?}");
    }
}

pub async fn a_block_outlasts_every_window(fixture: Fixture) {
    for policy in &each_algorithm(10) {
        fixture.set(START);
        block(&fixture, policy, Quota::MAX_WINDOW).await;
        fixture.set(START + Quota::MAX_WINDOW.as_micros() as u64 - 1);
        let standing = standing(&fixture, policy, 1).await;
        assert_eq!(standing.retry_after, Some(Duration::from_micros(1)), "{policy:?}");
    }
}

pub async fn the_duration_of_a_block_is_bounded(fixture: Fixture) {
    fixture.set(START);
    let policy = policy("p", "10/s");
    for duration in [Duration::ZERO, Quota::MAX_WINDOW + Duration::from_nanos(1), Duration::MAX] {
        let error = fixture.limiter.block(policy.charge("alice", 1), duration).await;
        let error = error.expect_err("out of range");
        assert!(error.kind() == ErrorKind::Invalid);
        let text = error.to_string();
        assert!(text.contains("duration of a block") && text.contains("400 days"), "{text}");
    }
    // Rounded up, so that no block is shorter than it was asked for.
    block(&fixture, &policy, Duration::from_nanos(1)).await;
    let wait = standing(&fixture, &policy, 1).await.retry_after;
    assert_eq!(wait, Some(Duration::from_micros(1)));
}
