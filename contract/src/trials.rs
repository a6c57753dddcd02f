//! Trials: charges that count by their own verdict alone, and deny nothing.

use plimsoll::{limiter::Reserved, policy::TrialCounts, store::Verdict};

use super::checks::{START, each_algorithm, remaining};
use crate::{Fixture, policy};

/// A trial that is alone in its check is decided like a live charge, and denies nothing.
pub async fn a_trial_never_binds(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(2) {
        for (cost, verdict, granted) in
            [(3, Verdict::OverCapacity, 0), (2, Verdict::Passed, 2), (1, Verdict::Refused, 0)]
        {
            let trial = policy.charge("alice", cost).trial();
            let decision = fixture.limiter.check(trial).await.expect("an answer");
            assert!(decision.is_allowed() && decision.binding().is_none());
            let outcome = decision.outcomes().next().expect("an outcome");
            assert_eq!((outcome.verdict(), outcome.granted()), (verdict, granted));
        }
        assert_eq!(policy.trial_counts(), TrialCounts::default(), "there is no live charge");
    }
}

pub async fn a_trial_is_charged_whatever_the_live_charges_decide(fixture: Fixture) {
    fixture.set(START);
    for (index, tried) in each_algorithm(9).iter().enumerate() {
        let gate = policy(&format!("gate-{index}"), "1/s");
        let charges = [tried.charge("alice", 4).trial(), gate.charge("alice", 1)];
        for (live, verdict, granted, left) in [
            (true, Verdict::Passed, 4, 5),
            (false, Verdict::Passed, 4, 1),
            (false, Verdict::Refused, 0, 1),
        ] {
            let decision = fixture.limiter.check(charges.clone()).await.expect("an answer");
            let trial = decision.outcomes().next().expect("the trial");
            assert_eq!(decision.is_allowed(), live);
            assert_eq!((trial.verdict(), trial.granted()), (verdict, granted), "{tried:?}");
            assert_eq!(trial.standing().remaining, left, "{tried:?}");
            assert_eq!(remaining(&fixture, tried).await, left, "{tried:?}");
        }
        // The live charge of a check that a trial does not pass is spent.
        let other = policy(&format!("other-{index}"), "1/s");
        let charges = [other.charge("alice", 1), tried.charge("alice", 4).trial()];
        assert!(fixture.limiter.check(charges).await.expect("an answer").is_allowed());
        assert_eq!(remaining(&fixture, &other).await, 0);
        let counts = tried.trial_counts();
        let counts = [
            counts.allowed_by_both,
            counts.allowed_by_live_only,
            counts.allowed_by_trial_only,
            counts.denied_by_both,
        ];
        assert_eq!(counts, [1, 1, 1, 1], "{tried:?}");
    }
}

/// The shadow of a looser limit sees only the requests that the live limit admits.
pub async fn a_trial_shows_what_a_shadow_cannot(fixture: Fixture) {
    fixture.set(START);
    let live = policy("live", "100/min");
    let shadow = policy("shadow", "200/min");
    let trial = policy("trial", "200/min");
    let mut would_deny = [0, 0];
    for _ in 0..300 {
        let charges = [
            live.charge("alice", 1),
            shadow.charge("alice", 1).shadow(),
            trial.charge("alice", 1).trial(),
        ];
        let decision = fixture.limiter.check(charges).await.expect("an answer");
        for (index, count) in would_deny.iter_mut().enumerate() {
            let outcome = decision.outcomes().nth(1 + index).expect("three charges");
            *count += u64::from(outcome.verdict() != Verdict::Passed);
        }
    }
    assert_eq!(would_deny, [0, 100], "of the shadow, and of the trial");
    let counts = trial.trial_counts();
    assert_eq!((counts.allowed_by_both, counts.allowed_by_trial_only), (100, 100));
    assert_eq!((counts.allowed_by_live_only, counts.denied_by_both), (0, 100));
}

pub async fn a_trial_is_judged_after_its_own_charge(fixture: Fixture) {
    fixture.set(START);
    for policy in &each_algorithm(5) {
        let charges = [policy.charge("alice", 3).trial(), policy.charge("alice", 3)];
        let decision = fixture.limiter.check(charges).await.expect("an answer");
        let verdicts: Vec<_> = decision.outcomes().map(|it| it.verdict()).collect();
        assert_eq!(verdicts, [Verdict::Refused, Verdict::Passed], "{policy:?}");
        let charges = [policy.charge("bob", 3).trial(), policy.charge("bob", 6)];
        let denied = fixture.limiter.check(charges).await.expect("an answer");
        let granted: Vec<_> = denied.outcomes().map(|it| it.granted()).collect();
        assert_eq!(granted, [3, 0], "{policy:?}");
        assert_eq!(remaining(&fixture, policy).await, 2);
    }
}

pub async fn a_peek_spends_no_trial(fixture: Fixture) {
    fixture.set(START);
    let gate = policy("gate", "1/s");
    for tried in &each_algorithm(9) {
        let charges = [gate.charge("alice", 2), tried.charge("alice", 4).trial()];
        let decision = fixture.limiter.peek(charges.clone()).await.expect("an answer");
        assert!(!decision.is_allowed());
        assert_eq!(remaining(&fixture, tried).await, 9);
        assert_eq!(tried.trial_counts(), TrialCounts::default());
    }
}

/// The trial of an admitted check is refunded and settled with it. A denied check has no receipt.
pub async fn a_trial_is_refunded_and_settled_with_its_check(fixture: Fixture) {
    fixture.set(START);
    for (index, tried) in each_algorithm(9).iter().enumerate() {
        let gate = policy(&format!("gate-{index}"), "9/s");
        let charges = [gate.charge("alice", 1), tried.charge("alice", 4).trial()];
        let Reserved::Held(held) =
            fixture.limiter.reserve(charges.clone()).await.expect("an answer")
        else {
            panic!("there is room")
        };
        assert_eq!(held.refund().await.expect("an answer"), 5, "{tried:?}");
        assert_eq!(remaining(&fixture, tried).await, 9, "{tried:?}");
        let Reserved::Held(held) =
            fixture.limiter.reserve(charges.clone()).await.expect("an answer")
        else {
            panic!("there is room")
        };
        held.settle(6).await.expect("an answer");
        assert_eq!(remaining(&fixture, tried).await, 3, "{tried:?}");
        // One that did not pass is neither.
        let Reserved::Held(held) =
            fixture.limiter.reserve(charges.clone()).await.expect("an answer")
        else {
            panic!("there is room")
        };
        assert_eq!(held.refund().await.expect("an answer"), 1, "{tried:?}");
        assert_eq!(remaining(&fixture, tried).await, 3, "{tried:?}");
    }
}

pub async fn a_blocked_trial_is_refused_and_denies_nothing(fixture: Fixture) {
    fixture.set(START);
    let live = policy("live", "9/s");
    for tried in &each_algorithm(5) {
        let minute = std::time::Duration::from_secs(60);
        fixture.limiter.block(tried.charge("alice", 1), minute).await.expect("blocked");
        let charges = [live.charge(tried.name(), 1), tried.charge("alice", 1).trial()];
        let decision = fixture.limiter.check(charges).await.expect("an answer");
        assert!(decision.is_allowed(), "{tried:?}");
        let trial = decision.outcomes().nth(1).expect("two charges");
        assert_eq!((trial.verdict(), trial.granted()), (Verdict::Refused, 0), "{tried:?}");
    }
}

/// In a cluster, the keys are in several slots, which are asked one after the other. All trials are spent,
/// and the live charges that were spent before the denial are refunded.
pub async fn trials_of_several_keys_are_spent_also_if_a_later_key_denies(fixture: Fixture) {
    fixture.set(START);
    let keys = ["alice", "bob", "carol", "dave", "erin"];
    let limiter = &fixture.limiter;
    for tried in &each_algorithm(9) {
        for full in keys {
            let gate = policy(&format!("gate-{}-{full}", tried.name()), "1/s");
            assert!(limiter.check(gate.charge(full, 1)).await.expect("an answer").is_allowed());
            let charges = keys
                .into_iter()
                .flat_map(|key| [tried.charge(key, 1).trial(), gate.charge(key, 1)]);
            let decision = limiter.check(charges.collect::<Vec<_>>()).await.expect("an answer");
            assert!(!decision.is_allowed(), "{full} has no unit left");
            let granted: Vec<_> = decision.outcomes().map(|it| it.granted()).collect();
            assert_eq!(granted, [1, 0].repeat(5), "{tried:?} {full}");
            for key in keys.into_iter().filter(|key| *key != full) {
                let peek = limiter.peek(gate.charge(key, 1)).await.expect("an answer");
                assert!(peek.is_allowed(), "the unit of {key} was refunded");
            }
        }
        for key in keys {
            let decision = limiter.peek(tried.charge(key, 0)).await.expect("an answer");
            let standing = decision.outcomes().next().expect("an outcome").standing();
            assert_eq!(standing.remaining, 4, "{tried:?} {key}");
        }
    }
}

/// The work of a denied check is never in flight, so it takes no unit of a concurrency limit on trial.
pub async fn a_trial_in_flight_is_a_shadow(fixture: Fixture) {
    fixture.set(START);
    let gate = policy("gate", "1/s");
    let jobs = policy("jobs", "5 concurrent expires(30s)");
    for (live, left) in [(true, 4), (false, 4)] {
        let charges = [gate.charge("alice", 1), jobs.charge("alice", 1).trial()];
        let decision = fixture.limiter.check(charges).await.expect("an answer");
        assert_eq!(decision.is_allowed(), live);
        assert_eq!(remaining(&fixture, &jobs).await, left);
    }
    assert_eq!(jobs.trial_counts(), TrialCounts::default());
}
