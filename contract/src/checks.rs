//! One check: several charges, shadows, costs that are special.

use std::time::Duration;

use plimsoll::{Algorithm, Decision, Policy, Quota, policy::Charges, store::Verdict};

use crate::{Fixture, policy};

/// 2023, in microseconds: a multiple of 100 seconds.
pub const START: u64 = 1_700_000_000_000_000;

/// A quota of `limit` a second for each algorithm; the capacity is `limit`.
pub fn each_algorithm(limit: u64) -> Vec<Policy> {
    let policies = Algorithm::EACH.iter().enumerate().map(|(index, algorithm)| {
        let algorithm = match *algorithm {
            Algorithm::SlidingBuckets(_) => Algorithm::SlidingBuckets(4),
            Algorithm::TokenBucket { .. } => Algorithm::TokenBucket { burst: limit },
            other => other,
        };
        let quota = Quota::new(limit, Duration::from_secs(1), algorithm);
        Policy::new(&format!("p{index}"), quota.expect("valid")).expect("a valid name")
    });
    policies.collect()
}

pub async fn remaining(fixture: &Fixture, policy: &Policy) -> u64 {
    let decision = fixture.limiter.peek(policy.charge("alice", 0)).await.expect("an answer");
    decision.outcomes().next().expect("an outcome").standing().remaining
}

pub async fn check<'p>(fixture: &Fixture, policy: &'p Policy, cost: u64) -> Decision<'p> {
    fixture.limiter.check(policy.charge("alice", cost)).await.expect("an answer")
}

fn verdicts(decision: &Decision<'_>) -> Vec<(Verdict, u64)> {
    decision.outcomes().map(|it| (it.verdict(), it.granted())).collect()
}

pub async fn all_or_nothing(fixture: Fixture) {
    fixture.set(START);
    for wide in &each_algorithm(10) {
        let narrow = policy(&format!("narrow-{}", wide.name()), "2/s");
        let charges = [wide.charge("alice", 3), narrow.charge("alice", 1)];
        for _ in 0..2 {
            assert!(fixture.limiter.check(charges.clone()).await.expect("an answer").is_allowed());
        }
        let denied = fixture.limiter.check(charges.clone()).await.expect("an answer");
        assert!(!denied.is_allowed());
        assert_eq!(verdicts(&denied), [(Verdict::Passed, 0), (Verdict::Refused, 0)]);
        assert_eq!(remaining(&fixture, wide).await, 4);
        assert_eq!(remaining(&fixture, &narrow).await, 0);
    }
}

pub async fn mixed_algorithms(fixture: Fixture) {
    fixture.set(START);
    let policies = each_algorithm(5);
    let charges = policies.iter().map(|policy| policy.charge("alice", 2)).collect::<Charges<'_>>();
    for left in [3, 1] {
        let decision = fixture.limiter.check(charges.clone()).await.expect("an answer");
        assert_eq!(verdicts(&decision), [(Verdict::Passed, 2); Algorithm::EACH.len()]);
        assert!(decision.outcomes().all(|it| it.standing().remaining == left));
    }
    let decision = fixture.limiter.check(charges.clone()).await.expect("an answer");
    assert_eq!(verdicts(&decision), [(Verdict::Refused, 0); Algorithm::EACH.len()]);
}

pub async fn equal_charges_are_summed(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(5) {
        let charges =
            [policy.charge("alice", 2), policy.charge("bob", 1), policy.charge("alice", 3)];
        let decision = fixture.limiter.check(charges).await.expect("an answer");
        assert_eq!(verdicts(&decision), [(Verdict::Passed, 5), (Verdict::Passed, 1)]);
        assert_eq!(remaining(&fixture, policy).await, 0);
    }
}

pub async fn equal_charges_beyond_the_limit_are_one_refusal(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(5) {
        for (cost, verdict) in [
            (3, (Verdict::OverCapacity, 0)),
            (1, (Verdict::Passed, 2)),
            (2, (Verdict::Refused, 0)),
            (u64::MAX, (Verdict::OverCapacity, 0)),
        ] {
            let twice = [policy.charge("alice", cost), policy.charge("alice", cost)];
            let decision = fixture.limiter.check(twice).await.expect("an answer");
            assert_eq!(verdicts(&decision), [verdict]);
        }
        assert_eq!(remaining(&fixture, policy).await, 3);
    }
}

pub async fn a_shadow_never_binds(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(2) {
        for (cost, verdict) in
            [(3, Verdict::OverCapacity), (2, Verdict::Passed), (1, Verdict::Refused)]
        {
            let shadow = policy.charge("alice", cost).shadow();
            let decision = fixture.limiter.check(shadow).await.expect("an answer");
            assert!(decision.is_allowed());
            assert!(decision.binding().is_none());
            assert_eq!(decision.outcomes().next().expect("an outcome").verdict(), verdict);
            let waits =
                decision.outcomes().next().expect("an outcome").standing().retry_after.is_some();
            assert_eq!(waits, verdict == Verdict::Refused);
        }
    }
}

pub async fn a_refused_shadow_holds_up_nothing(fixture: Fixture) {
    fixture.set(START);
    let real = policy("real", "9/s");
    for (index, shadowed) in each_algorithm(2).iter().enumerate() {
        assert!(check(&fixture, shadowed, 1).await.is_allowed());
        for (cost, verdict) in [(2, Verdict::Refused), (3, Verdict::OverCapacity)] {
            let key = index as u64;
            let charges = [shadowed.charge("alice", cost).shadow(), real.charge(key, 1)];
            let decision = fixture.limiter.check(charges).await.expect("an answer");
            assert_eq!(verdicts(&decision), [(verdict, 0), (Verdict::Passed, 1)]);
        }
        assert_eq!(remaining(&fixture, shadowed).await, 1);
    }
}

pub async fn a_shadow_is_charged_if_it_passes_and_the_check_is_admitted(fixture: Fixture) {
    fixture.set(START);
    let gate = policy("gate", "1/s");
    for shadowed in &each_algorithm(9) {
        fixture.limiter.reset(gate.charge("alice", 0)).await.expect("an answer");
        let charges = [shadowed.charge("alice", 4).shadow(), gate.charge("alice", 1)];
        let admitted = fixture.limiter.check(charges.clone()).await.expect("an answer");
        assert_eq!(verdicts(&admitted), [(Verdict::Passed, 4), (Verdict::Passed, 1)]);
        let denied = fixture.limiter.check(charges.clone()).await.expect("an answer");
        assert_eq!(verdicts(&denied), [(Verdict::Passed, 0), (Verdict::Refused, 0)]);
        assert_eq!(remaining(&fixture, shadowed).await, 5);
    }
}

pub async fn a_shadow_is_judged_after_its_own_charge(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(5) {
        let charges = [policy.charge("alice", 3).shadow(), policy.charge("alice", 3)];
        let decision = fixture.limiter.check(charges).await.expect("an answer");
        assert_eq!(verdicts(&decision), [(Verdict::Refused, 0), (Verdict::Passed, 3)]);
        assert_eq!(remaining(&fixture, policy).await, 2);
    }
}

pub async fn cost_0_reads(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(2) {
        assert!(check(&fixture, policy, 0).await.is_allowed());
        assert!(check(&fixture, policy, 2).await.is_allowed());
        let decision = check(&fixture, policy, 0).await;
        assert!(decision.is_allowed());
        assert_eq!(decision.outcomes().next().expect("an outcome").standing().remaining, 0);
        assert_eq!(decision.outcomes().next().expect("an outcome").standing().retry_after, None);
    }
}

pub async fn over_capacity(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(2) {
        for cost in [3, u64::MAX] {
            let Decision::Denied(denied) = check(&fixture, policy, cost).await else {
                panic!("{cost} units of 2")
            };
            assert!(denied.is_over_capacity());
            assert_eq!(denied.retry_after(), None);
            assert_eq!(denied.outcomes().next().expect("an outcome").standing().remaining, 2);
        }
        // It binds, whatever the others wait.
        let full = crate::policy("full", "1/s");
        let _ = check(&fixture, &full, 1).await;
        let charges = [full.charge("alice", 1), policy.charge("alice", 3)];
        let Decision::Denied(denied) = fixture.limiter.check(charges).await.expect("an answer")
        else {
            panic!("over capacity")
        };
        assert_eq!(denied.binding().map(|it| it.verdict()), Some(Verdict::OverCapacity));
        assert_eq!(denied.retry_after(), None);
    }
}

pub async fn peek_spends_nothing(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(3) {
        for _ in 0..3 {
            let peek = fixture.limiter.peek(policy.charge("alice", 3)).await.expect("an answer");
            assert!(peek.is_allowed());
            assert_eq!(verdicts(&peek), [(Verdict::Passed, 0)]);
            assert_eq!(peek.outcomes().next().expect("an outcome").standing().remaining, 3);
        }
    }
}

pub async fn a_denial_spends_nothing(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(3) {
        assert!(check(&fixture, policy, 2).await.is_allowed());
        let denied = format!("{:?}", check(&fixture, policy, 2).await.outcomes());
        for _ in 0..3 {
            assert_eq!(format!("{:?}", check(&fixture, policy, 2).await.outcomes()), denied);
        }
        assert!(check(&fixture, policy, 1).await.is_allowed());
    }
}

pub async fn up_to_takes_what_is_free(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(10) {
        for (most, granted) in [(4, 4), (u64::MAX, 6)] {
            let charge = policy.charge("alice", 1).up_to(most);
            let decision = fixture.limiter.check(charge).await.expect("an answer");
            assert_eq!(verdicts(&decision), [(Verdict::Passed, granted)]);
        }
        let charge = policy.charge("alice", 1).up_to(5);
        assert!(!fixture.limiter.check(charge).await.expect("an answer").is_allowed());
        // From 0: whatever there is, also nothing.
        let charge = policy.charge("alice", 0).up_to(5);
        let decision = fixture.limiter.check(charge).await.expect("an answer");
        assert_eq!(verdicts(&decision), [(Verdict::Passed, 0)]);
    }
}

pub async fn policies_and_keys_are_apart(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(1) {
        for key in ["alice", "bob", ""] {
            let decision = fixture.limiter.check(policy.charge(key, 1)).await.expect("an answer");
            assert!(decision.is_allowed());
        }
        assert!(!check(&fixture, policy, 1).await.is_allowed());
    }
}

pub async fn the_widest_and_largest_quota(fixture: Fixture) {
    const MAX_LIMIT: u64 = 1_000_000_000_000;
    const WINDOW: u64 = 400 * 86_400_000_000;
    fixture.set(START);
    for kind in ["sliding-counter", "fixed-window", "token-bucket(1000000000000)"] {
        let name = kind.split('(').next().expect("a name");
        let policy = policy(name, &format!("{MAX_LIMIT}/400d {kind}"));
        assert!(check(&fixture, &policy, MAX_LIMIT - 1).await.is_allowed());
        assert!(!check(&fixture, &policy, 2).await.is_allowed());
        assert!(check(&fixture, &policy, 1).await.is_allowed());
        let Decision::Denied(denied) = check(&fixture, &policy, MAX_LIMIT).await else {
            panic!("{kind}")
        };
        let wait = denied.retry_after().expect("a wait").as_micros() as u64;
        match kind {
            "fixed-window" => assert_eq!(wait, (START / WINDOW + 1) * WINDOW - START),
            "sliding-counter" => assert_eq!(wait, (START / WINDOW + 2) * WINDOW - START),
            _ => assert_eq!(wait, WINDOW),
        }
    }
}

/// A log of 10,000 has exact times. A log of more has times of 10,000 a window: here of 6 ms.
pub async fn a_log_above_10_000_rounds_times_up(fixture: Fixture) {
    const MINUTE: u64 = 60_000_000;
    let start = START / 6_000 * 6_000;
    for (limit, late) in [(10_000, 0), (10_001, 5_999), (60_000, 5_999), (1 << 31, 5_999)] {
        fixture.set(start + 1);
        let log = policy(&format!("log{limit}"), &format!("{limit}/min"));
        assert!(check(&fixture, &log, 1).await.is_allowed());
        // The bound holds exactly.
        fixture.set(start + 6_000);
        assert!(check(&fixture, &log, limit - 1).await.is_allowed());
        let Decision::Denied(denied) = check(&fixture, &log, 1).await else { panic!("{limit}") };
        let wait = denied.retry_after().expect("a wait").as_micros() as u64;
        assert_eq!(wait, MINUTE + 1 + late - 6_000, "{limit}");
        fixture.set(start + MINUTE + late);
        assert!(!check(&fixture, &log, 1).await.is_allowed(), "{limit}");
        fixture.set(start + MINUTE + late + 1);
        assert!(check(&fixture, &log, 1).await.is_allowed(), "{limit}");
    }
}

/// A window of up to 10 ms has at most 10,000 microseconds.
pub async fn short_windows_are_never_rounded(fixture: Fixture) {
    for (window, late) in [(1_000, 0), (10_000, 0), (11_000, 1)] {
        let log = policy(&format!("log{window}"), &format!("60000/{window}us"));
        fixture.set(START + 1);
        assert!(check(&fixture, &log, 60_000).await.is_allowed());
        fixture.set(START + window + late);
        assert_eq!(remaining(&fixture, &log).await, 0, "{window}");
        fixture.set(START + window + late + 1);
        assert_eq!(remaining(&fixture, &log).await, 60_000, "{window}");
    }
}
