use std::time::Duration;

use proptest::{prelude::*, test_runner::TestRunner};
use tollgate::{
    Algorithm, Decision, Limiter, ManualClock, Policy, Quota, Reservation, Reserve,
    store::{Resilience, Source, Verdict},
};

use crate::{
    remote::{Mood, Remote},
    support::{Tally, micros, policy},
};

const START: u64 = 1_700_000_000_000_000;

fn cached(clock: &ManualClock) -> (Limiter, Remote) {
    let remote = Remote::new(clock);
    let limiter = Limiter::with(remote.clone(), Resilience::default().clock(clock.clone()));
    (limiter, remote)
}

#[tokio::test]
async fn a_denied_key_costs_the_store_nothing() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "2/s");
    for _ in 0..2 {
        assert!(limiter.check(policy.charge("alice", 1)).await.unwrap().is_allowed());
    }
    for _ in 0..1_000 {
        assert!(!limiter.check(policy.charge("alice", 1)).await.unwrap().is_allowed());
    }
    assert_eq!(remote.calls(), 3);
    clock.advance(Duration::from_micros(999_999));
    let Decision::Denied(denied) = limiter.check(policy.charge("alice", 1)).await.unwrap() else {
        panic!("a microsecond early")
    };
    assert_eq!(denied.retry_after(), Some(Duration::from_micros(1)));
    clock.advance(Duration::from_micros(1));
    assert!(limiter.check(policy.charge("alice", 1)).await.unwrap().is_allowed());
    assert_eq!(remote.calls(), 4);
}

#[tokio::test]
async fn what_costs_more_is_denied_too_and_what_costs_less_is_asked() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "10/h");
    assert!(limiter.check(policy.charge("alice", 7)).await.unwrap().is_allowed());
    assert!(!limiter.check(policy.charge("alice", 4)).await.unwrap().is_allowed());
    let calls = remote.calls();
    let dearer = limiter.check(policy.charge("alice", 5)).await.unwrap();
    assert_eq!(
        (dearer.is_allowed(), dearer.source(), remote.calls()),
        (false, Source::Cache, calls)
    );
    let over = limiter.check(policy.charge("alice", 11)).await.unwrap();
    assert_eq!(over.outcomes().get(0).unwrap().verdict(), Verdict::OverCapacity);
    assert!(limiter.check(policy.charge("alice", 3)).await.unwrap().is_allowed());
    assert_eq!(remote.calls(), calls + 1);
}

#[tokio::test(start_paused = true)]
async fn a_denial_of_the_fallback_is_not_remembered() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "1/h");
    remote.set(Mood::Down);
    for allowed in [true, false, false] {
        let decision = limiter.check(policy.charge("alice", 1)).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.source()), (allowed, Source::Fallback));
    }
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let clock = ManualClock::at(START);
    let remote = Remote::new(&clock);
    let limiter = Limiter::with(remote.clone(), Resilience::default().without_deny_cache());
    let policy = policy("p", "1/h");
    for _ in 0..10 {
        let _ = limiter.check(policy.charge("alice", 1)).await.unwrap();
    }
    assert_eq!(remote.calls(), 10);
}

#[derive(Debug, Clone)]
enum Step {
    Check { lines: Vec<(usize, usize, u64)>, keep: bool },
    Advance(u64),
    Refund,
    Settle(u64),
    Reset(usize, usize),
    Limit(usize, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let line = (0..2_usize, 0..2_usize, prop_oneof![8 => 1..4_u64, 1 => Just(0), 1 => 8..14_u64]);
    let step = prop_oneof![
        10 => (prop::collection::vec(line, 1..3), any::<bool>())
            .prop_map(|(lines, keep)| Step::Check { lines, keep }),
        4 => prop_oneof![0..2_000_u64, 0..400_000_u64, 0..2_000_000_u64].prop_map(Step::Advance),
        1 => Just(Step::Refund),
        1 => (0..6_u64).prop_map(Step::Settle),
        1 => (0..2_usize, 0..2_usize).prop_map(|(policy, key)| Step::Reset(policy, key)),
        1 => (0..2_usize, 4..12_u64).prop_map(|(policy, limit)| Step::Limit(policy, limit)),
    ];
    prop::collection::vec(step, 1..120)
}

/// What a decision says, to be compared; waits only of charges whose wait is known.
fn said(decision: &Decision<'_>, exact: bool) -> Vec<String> {
    let outcomes = decision.outcomes();
    let said = outcomes.iter().map(|it| {
        let standing = it.standing();
        let waits = (standing.next_after(), standing.reset_after());
        let retry_after = exact.then(|| standing.retry_after());
        format!(
            "{:?} {} {} {waits:?} {retry_after:?}",
            it.verdict(),
            it.granted(),
            standing.remaining()
        )
    });
    said.chain([format!("{}", decision.is_allowed())]).collect()
}

/// With the cache every decision is what it would be without: for any history of this process.
#[test]
fn no_history_tells_it_from_a_store_that_is_asked() {
    let tally = Tally::expecting(&[
        "answered from the cache",
        "answered from the cache, for more",
        "asked, and denied",
        "asked, and admitted",
        "several charges",
        "given back while denied",
        "reset while denied",
        "limit changed while denied",
    ]);
    let algorithms = [
        Algorithm::SlidingLog,
        Algorithm::SlidingBuckets(4),
        Algorithm::SlidingCounter,
        Algorithm::TokenBucket { burst: 6 },
        Algorithm::FixedWindow,
    ];
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() };
    let outcome = TestRunner::new(config).run(&(0..5_usize, steps()), |(algorithm, steps)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(algorithms[algorithm], &steps, &tally));
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    tally.report("deny cache");
}

async fn play(algorithm: Algorithm, steps: &[Step], tally: &Tally) {
    let quota = |limit| Quota::with_algorithm(limit, Duration::from_secs(1), algorithm).unwrap();
    let policies =
        [("first", 8), ("second", 5)].map(|(name, limit)| Policy::new(name, quota(limit)).unwrap());
    let clock = ManualClock::at(START);
    let (with, _) = cached(&clock);
    let without = Limiter::with(Remote::new(&clock), Resilience::none());
    let mut held: Vec<[Reservation; 2]> = Vec::new();
    let mut denied = false;
    for step in steps {
        match step {
            Step::Advance(by) => clock.advance(Duration::from_micros(*by)),
            Step::Check { lines, keep } => {
                let charges = || -> Vec<_> {
                    let charge = |(policy, key, cost): &(usize, usize, u64)| {
                        policies[*policy].charge(["alice", "bob"][*key], *cost)
                    };
                    lines.iter().map(charge).collect()
                };
                let ours = with.check(charges()).await.unwrap();
                let theirs = without.check(charges()).await.unwrap();
                // Of a dearer charge the cache knows that it is denied, and a wait that is not too
                // short.
                let waits = |decision: &Decision<'_>| -> Vec<_> {
                    let outcomes = decision.outcomes();
                    outcomes
                        .iter()
                        .map(|it| it.standing().retry_after().map_or(0, micros))
                        .collect()
                };
                let exact = waits(&ours) == waits(&theirs);
                assert_eq!(said(&ours, exact), said(&theirs, exact));
                let cached = ours.source() == Source::Cache;
                assert!(exact || cached);
                assert!(
                    waits(&ours).iter().zip(waits(&theirs)).all(|(ours, theirs)| *ours >= theirs)
                );
                tally.count_if(cached, "answered from the cache");
                tally.count_if(!exact, "answered from the cache, for more");
                denied = !ours.is_allowed();
                tally.count_if(!cached && denied, "asked, and denied");
                tally.count_if(!denied, "asked, and admitted");
                tally.count_if(ours.outcomes().len() > 1, "several charges");
                if let (true, Decision::Allowed(ours), Decision::Allowed(theirs)) =
                    (*keep, ours, theirs)
                {
                    let ours = with.hold(ours.into_receipt());
                    held.push([ours, without.hold(theirs.into_receipt())]);
                }
            }
            Step::Refund => {
                if let Some([ours, theirs]) = held.pop() {
                    ours.refund().await.unwrap();
                    theirs.refund().await.unwrap();
                    tally.count_if(denied, "given back while denied");
                }
            }
            Step::Settle(units) => {
                if let Some([ours, theirs]) = held.pop() {
                    ours.settle(*units).await.unwrap();
                    theirs.settle(*units).await.unwrap();
                }
            }
            Step::Reset(policy, key) => {
                let charge = || policies[*policy].charge(["alice", "bob"][*key], 0);
                with.reset(charge()).await.unwrap();
                without.reset(charge()).await.unwrap();
                tally.count_if(denied, "reset while denied");
            }
            Step::Limit(policy, limit) => {
                policies[*policy].set_quota(quota(*limit));
                tally.count_if(denied, "limit changed while denied");
            }
        }
    }
}

/// A denial that is on its way when units are given back is not remembered.
#[tokio::test]
async fn a_denial_on_its_way_does_not_outlive_a_refund() {
    let clock = ManualClock::at(START);
    let (limiter, remote) = cached(&clock);
    let policy = policy("p", "1/h");
    let Reserve::Held(held) = limiter.reserve(policy.charge("alice", 1)).await.unwrap() else {
        panic!("one is free")
    };
    remote.set(Mood::Late);
    let mut late = Box::pin(limiter.check(policy.charge("alice", 1)));
    assert!(futures_util::poll!(&mut late).is_pending());
    remote.set(Mood::Well);
    held.refund().await.unwrap();
    assert!(!late.await.unwrap().is_allowed());
    let decision = limiter.check(policy.charge("alice", 1)).await.unwrap();
    assert!(decision.is_allowed(), "{decision:?}");
}
