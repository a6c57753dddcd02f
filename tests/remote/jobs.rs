//! Jobs that wait for a turn while the store cannot answer.

use std::time::Duration;

use futures_util::future::join_all;
use plimsoll::{Decision, OnFailure, Resilience, error::ErrorKind, store::Source};
use plimsoll_testing::policy;
use tokio::time::{Instant, sleep};

use crate::{
    fallback::Bench,
    remote::{FOREIGN, Mood},
};

const OUTAGE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);
/// The longest time after an outage in which a job has not seen that the store answers.
const RECOVERY: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out() {
    for mood in [Mood::Down, Mood::Hangs] {
        for on_failure in [None, Some(OnFailure::Deny)] {
            for resilience in [Resilience::default(), Resilience::default().without_fallback()] {
                let bench = Bench::with(resilience);
                let policy = policy("p", "10/h");
                bench.remote.set(mood);
                let start = Instant::now();
                let charge = policy.charge("job", 1);
                let charge = match on_failure {
                    Some(on_failure) => charge.with_on_failure(on_failure),
                    None => charge,
                };
                let store = async {
                    sleep(OUTAGE).await;
                    bench.remote.set(Mood::Well);
                };
                let (turn, ()) = tokio::join!(bench.limiter.until_ready(charge, LONG), store);
                let decision = turn.expect("the store answers again");
                assert!(decision.is_allowed(), "{mood:?}");
                assert_eq!(decision.source(), Source::Shared);
                let waited = start.elapsed();
                assert!(waited >= OUTAGE && waited <= OUTAGE + RECOVERY, "{mood:?}: {waited:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_lasts_too_long_is_an_error_at_the_end_of_the_wait() {
    let bench = Bench::new(1);
    let policy = policy("p", "10/h");
    bench.remote.set(Mood::Down);
    for within in [Duration::ZERO, Duration::from_millis(20), OUTAGE] {
        let start = Instant::now();
        let turn = bench.limiter.until_ready(policy.charge("job", 1), within).await;
        assert!(turn.expect_err("the store is down").is_unavailable());
        let late = start.elapsed() - within;
        assert!(late <= Duration::from_millis(60), "{within:?}: {late:?} too late");
    }
    // Checks are decided by the fallback, as before.
    assert_eq!(bench.admitted(&policy, 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_job_may_choose_another_reaction() {
    let bench = Bench::new(2);
    let policy = policy("p", "10/h");
    bench.remote.set(Mood::Down);
    let turn = async |on_failure| {
        let charge = policy.charge("job", 1).with_on_failure(on_failure);
        bench.limiter.until_ready(charge, Duration::ZERO).await.expect("a decision")
    };
    for _ in 0..5 {
        assert!(turn(OnFailure::Local).await.is_allowed());
    }
    assert!(!turn(OnFailure::Local).await.is_allowed(), "the share of one of two instances");
    assert!(turn(OnFailure::Allow).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_wait_for_the_store_gets_the_error_at_once() {
    for mood in [Mood::Down, Mood::Hangs] {
        let bench = Bench::with(Resilience::default().without_fallback());
        let policy = policy("p", "10/h");
        bench.remote.set(mood);
        let charge = policy.charge("job", 1);
        for charge in [
            charge.clone().with_on_failure(OnFailure::Local),
            charge.clone().with_on_failure(OnFailure::Allow),
            charge.clone().shadow(),
        ] {
            let start = Instant::now();
            let turn = bench.limiter.until_ready(charge, LONG).await;
            assert!(turn.expect_err("there is no fallback").is_unavailable());
            assert!(start.elapsed() <= Duration::from_millis(50), "the deadline of one check");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_job_of_a_queue_ends_with_an_error_in_an_outage() {
    let bench = Bench::new(1);
    let policy = policy("p", "10/h");
    bench.remote.set(Mood::Hangs);
    let jobs = (0..3).map(|_| bench.limiter.until_ready(policy.charge("job", 1), OUTAGE));
    for turn in join_all(jobs).await {
        let error = turn.expect_err("the store is down");
        // The first one waits for the store, and the others wait for the first one.
        let is_late = error.kind() == ErrorKind::Deadline;
        assert!(error.is_unavailable() || is_late, "{error:?}");
    }

    // The queue has no memory of an outage that is over.
    bench.remote.set(Mood::Well);
    let spent = bench.limiter.until_ready(policy.charge("job", 10), LONG).await;
    assert!(spent.expect("the store answers").is_allowed());
}

#[tokio::test(start_paused = true)]
async fn an_error_that_does_not_pass_is_returned_at_once() {
    let bench = Bench::new(1);
    let policy = policy("p", "10/h");
    let start = Instant::now();
    let turn = bench.limiter.until_ready(policy.charge(FOREIGN, 1), LONG).await;
    assert_eq!(turn.expect_err("a value of another type").kind(), ErrorKind::WrongType);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// A call of a job for the next 100 units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    UntilReady,
    Check,
    CheckOrError,
}

/// Processes that spend a paid quota as fast as they can, through two outages. Returns the units of each.
async fn spend_a_day(call: Call, processes: usize) -> Vec<u64> {
    let bench = Bench::new(1);
    let day = policy("day", "9500/day");
    let job = async |limiter: &plimsoll::Limiter| {
        let mut units = 0;
        loop {
            let charge = day.charge("us", 100);
            let turn = match call {
                Call::UntilReady => limiter.until_ready(charge, LONG).await,
                Call::Check => limiter.check(charge).await,
                Call::CheckOrError => limiter.check(charge.with_on_failure(OnFailure::Deny)).await,
            };
            match turn {
                Ok(Decision::Allowed(_)) => units += 100,
                Ok(Decision::Denied(_)) => return units,
                Err(error) => assert!(error.is_unavailable() && call == Call::CheckOrError),
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    let store = async {
        for mood in [Mood::Down, Mood::Well, Mood::Hangs, Mood::Well] {
            sleep(Duration::from_secs(2)).await;
            bench.remote.set(mood);
        }
    };
    // Each process has a fallback of its own.
    let process = || {
        let resilience = Resilience::default().clock(bench.clock.clone());
        plimsoll::Limiter::with_resilience(bench.remote.clone(), resilience)
    };
    let limiters: Vec<_> = (0..processes).map(|_| process()).collect();
    tokio::join!(join_all(limiters.iter().map(job)), store).0
}

#[tokio::test(start_paused = true)]
async fn jobs_that_wait_for_the_store_never_spend_more_than_the_quota() {
    for processes in [1, 2] {
        let units = spend_a_day(Call::UntilReady, processes).await;
        assert_eq!(units.iter().sum::<u64>(), 9_500, "{processes}");
        let units = spend_a_day(Call::CheckOrError, processes).await;
        let spent = units.iter().sum::<u64>();
        assert!((9_000..=9_500).contains(&spent), "{processes}: {spent}");
    }
}

/// The guide says how much a job spends that does not wait for the store.
#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_wait_for_the_store_spends_up_to_twice_the_quota() {
    let spent = spend_a_day(Call::Check, 1).await[0];
    assert!((9_500..=19_000).contains(&spent), "{spent}");
}
