//! Trials above a remote store: neither the deny cache, nor leases, nor an outage, nor a wait decides
//! whether a trial is counted.

use std::time::Duration;

use plimsoll::{Resilience, policy::TrialCounts, store::Source};
use plimsoll_testing::policy;

use crate::{fallback::Bench, remote::Mood};

fn counts(counts: TrialCounts) -> [u64; 4] {
    [
        counts.allowed_by_both,
        counts.allowed_by_live_only,
        counts.allowed_by_trial_only,
        counts.denied_by_both,
    ]
}

/// The deny cache knows that the live charge is refused, but the store has to count the trial.
#[tokio::test(start_paused = true)]
async fn a_check_with_a_trial_is_not_answered_from_the_deny_cache() {
    let bench = Bench::new(1);
    let (live, trial) = (policy("live", "2/h"), policy("trial", "5/h"));
    for check in 0..8 {
        let charges = [live.charge("alice", 1), trial.charge("alice", 1).trial()];
        let decision = bench.limiter.check(charges).await.expect("an answer");
        assert_eq!((decision.is_allowed(), decision.source()), (check < 2, Source::Shared));
    }
    assert_eq!(counts(trial.trial_counts()), [2, 0, 3, 3]);
    assert_eq!(bench.left(&trial, "alice").await, 0);
    // Without its trial, the check is.
    let calls = bench.remote.calls();
    assert_eq!(bench.check(live.charge("alice", 1)).await.source(), Source::Cache);
    assert_eq!(bench.remote.calls(), calls);
}

/// A dropped check may have spent its trial, so the cache forgets what it knows of the keys.
#[tokio::test(start_paused = true)]
async fn an_abandoned_check_voids_what_the_cache_knows_of_its_trial() {
    let bench = Bench::with(Resilience::default().without_fallback().without_breaker());
    let (live, trial) = (policy("live", "1/h"), policy("trial", "2/h"));
    let charges = || [live.charge("alice", 1), trial.charge("alice", 1).trial()];
    assert!(bench.limiter.check(charges()).await.expect("an answer").is_allowed());
    bench.remote.set(Mood::Mute);
    bench.limiter.check(charges()).await.expect_err("no answer");
    bench.remote.set(Mood::Well);
    assert!(!bench.check(trial.charge("alice", 1)).await.is_allowed(), "its second unit is spent");
}

/// During an outage, this process counts the trial by itself, and afterwards charges it to the store.
#[tokio::test(start_paused = true)]
async fn an_outage_counts_the_trial() {
    for resilience in [Resilience::default(), Resilience::default().without_breaker()] {
        let bench = Bench::with(resilience);
        let (live, trial) = (policy("live", "2/h"), policy("trial", "5/h"));
        bench.remote.set(Mood::Down);
        for check in 0..8 {
            let charges = [live.charge("alice", 1), trial.charge("alice", 1).trial()];
            let decision = bench.limiter.check(charges).await.expect("it falls back");
            assert_eq!((decision.is_allowed(), decision.source()), (check < 2, Source::Fallback));
        }
        assert_eq!(counts(trial.trial_counts()), [2, 0, 3, 3]);
        bench.heal(&live).await;
        assert_eq!(bench.left(&live, "alice").await, 0);
        assert_eq!(bench.left(&trial, "alice").await, 0, "what was counted here");
    }
}

/// A check with a trial is sent to the store, also for the live charge.
#[tokio::test(start_paused = true)]
async fn a_trial_is_not_leased() {
    let bench = Bench::new(1);
    let live = policy("live", "1000/s leased(100ms)");
    let trial = policy("trial", "2000/s leased(100ms)");
    for _ in 0..100 {
        let charges = [live.charge("alice", 1), trial.charge("alice", 1).trial()];
        assert!(bench.limiter.check(charges).await.expect("an answer").is_allowed());
    }
    assert_eq!(counts(trial.trial_counts()), [100, 0, 0, 0]);
    assert_eq!(bench.left(&trial, "alice").await, 1_900);
    assert_eq!(bench.limiter.status().leased_keys, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_decided_once_by_the_trial() {
    let bench = Bench::new(1);
    let (live, trial) = (policy("live", "1/s"), policy("trial", "10/h"));
    let clock = bench.clock.clone();
    let (jobs, ()) = tokio::join!(
        async {
            for _ in 0..3 {
                let charges = [live.charge("job", 1), trial.charge("job", 1).trial()];
                let turn = bench.limiter.until_ready(charges, Duration::from_secs(60)).await;
                let decision = turn.expect("an answer");
                assert!(decision.is_allowed());
                assert_eq!(decision.outcomes().nth(1).expect("the trial").granted(), 1);
            }
        },
        async {
            for _ in 0..400 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                clock.advance(Duration::from_millis(10));
            }
        }
    );
    let () = jobs;
    assert_eq!(bench.left(&trial, "job").await, 7);
    assert_eq!(counts(trial.trial_counts()), [3, 0, 0, 0]);
}
