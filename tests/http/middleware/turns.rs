//! Requests and jobs that wait for their turn, against a simulation that admits them one by one.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Response;
use plimsoll::{
    Algorithm, Decision, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule,
    clock::{Clock, TokioClock},
    memory::MemoryConfig,
    store::Verdict,
};
use plimsoll_testing::{
    CaseCounts,
    algorithms::with_parameters,
    micros,
    oracle::{Ask, Enforcement, Oracle},
    seed,
};
use proptest::prelude::*;
use tokio::time::{Instant, sleep_until};
use tower::{Layer, ServiceExt, service_fn};

use super::{PendingStore, get, policy};

/// The lateness of the timers of a chain of requests: up to 2 ms for each.
const SLACK: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Layer,
    Job,
}

#[derive(Debug, Clone)]
struct Case {
    quota: Quota,
    caller: Caller,
    is_remote: bool,
    max: Duration,
    /// The time until the next arrival, and the cost.
    arrivals: Vec<(Duration, u64)>,
}

fn cases() -> impl Strategy<Value = Case> {
    let quota = (prop::sample::select(Algorithm::EACH), 1..5_u16, 1..12_u64, 1..12_u64).prop_map(
        |(algorithm, buckets, burst, limit)| {
            let algorithm = with_parameters(algorithm, buckets, burst);
            Quota::new(limit, Duration::from_secs(2), algorithm).unwrap()
        },
    );
    let callers = prop::sample::select(vec![Caller::Layer, Caller::Job]);
    let gap = prop_oneof![3 => Just(0_u64), 1 => 0..30_u64];
    let arrivals = prop::collection::vec((gap, 1..8_u64), 1..60);
    (quota, callers, any::<bool>(), 4..60_u64, any::<bool>(), arrivals).prop_map(
        |(quota, caller, is_remote, max, is_unit, arrivals)| {
            // A sliding counter is estimated for other costs.
            let is_unit = is_unit || quota.algorithm() == Algorithm::SlidingCounter;
            let cost = |cost: u64| if is_unit { 1 } else { 1 + (cost - 1) % quota.capacity() };
            let arrivals = arrivals.into_iter();
            let arrivals = arrivals.map(|(gap, it)| (Duration::from_millis(100 * gap), cost(it)));
            let max = Duration::from_millis(100 * max + 50);
            Case { quota, caller, is_remote, max, arrivals: arrivals.collect() }
        },
    )
}

/// The time from the arrival to the turn, whether or not that is too late.
#[derive(Debug, Clone, Copy)]
struct Expected {
    wait: Duration,
    is_admitted: bool,
}

/// Admits the requests one after the other, each as soon as its units are free. Returns `None` if a turn comes
/// so close to the longest wait that timers decide.
fn simulate(case: &Case, start: u64) -> Option<Vec<Expected>> {
    let (mut oracle, mut now, mut last) = (Oracle::default(), start, start);
    let (quota, entry, enforcement) = (case.quota, (0, 0), Enforcement::Live);
    let mut expected = Vec::new();
    for (gap, cost) in &case.arrivals {
        now += micros(*gap);
        let behind = last.max(now);
        let turn = behind + oracle.wait(behind, entry, &quota, *cost);
        let wait = Duration::from_micros(turn - now);
        if wait.abs_diff(case.max) <= SLACK {
            return None;
        }
        let is_admitted = wait < case.max;
        if is_admitted {
            let ask = Ask { entry, quota, cost: *cost, most: *cost, lease: false, enforcement };
            assert!(oracle.check(turn, &[ask]).admitted);
            last = turn;
        }
        expected.push(Expected { wait, is_admitted });
    }
    Some(expected)
}

#[derive(Debug, Clone, Copy)]
struct Found {
    elapsed: Duration,
    is_admitted: bool,
    /// The wait of a denial, and the error up to which it is known.
    retry_after: Option<(Duration, Duration)>,
}

/// Sends all requests, and returns what each was answered.
async fn play(case: &Case, limiter: Limiter, policy: &Policy) -> Vec<Found> {
    let found = Arc::new(Mutex::new(BTreeMap::new()));
    let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let mut now = Instant::now();
    let mut tasks = Vec::new();
    for (index, (gap, cost)) in case.arrivals.iter().enumerate() {
        now += *gap;
        sleep_until(now).await;
        let (limiter, policy, found) = (limiter.clone(), policy.clone(), Arc::clone(&found));
        let (cost, caller, max) = (*cost, case.caller, case.max);
        let rule = Rule::new(policy.clone(), |_| "all").cost(move |_| cost);
        let service = RateLimitLayer::new(limiter.clone(), rule).delay(max).layer(inner);
        tasks.push(tokio::spawn(async move {
            let arrival = Instant::now();
            let answer = match caller {
                Caller::Layer => {
                    let response = service.oneshot(get("/")).await.unwrap();
                    let wait = response.headers().get("retry-after").map(|value| {
                        let seconds = value.to_str().unwrap().parse().unwrap();
                        (Duration::from_secs(seconds), Duration::from_secs(1))
                    });
                    (response.status() == 200, wait)
                }
                Caller::Job => match limiter.until_ready(policy.charge("all", cost), max).await {
                    Ok(Decision::Allowed(_)) => (true, None),
                    Ok(Decision::Denied(denied)) => {
                        let outcome = denied.outcomes().next().unwrap();
                        assert_eq!(outcome.verdict(), Verdict::Refused);
                        (false, denied.retry_after().map(|wait| (wait, SLACK)))
                    }
                    Err(error) => panic!("it waited, and was denied: {error}"),
                },
            };
            let (is_admitted, retry_after) = answer;
            let elapsed = arrival.elapsed();
            found.lock().unwrap().insert(index, Found { elapsed, is_admitted, retry_after });
        }));
        for _ in 0..6 {
            tokio::task::yield_now().await;
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let found = std::mem::take(&mut *found.lock().unwrap());
    found.into_values().collect()
}

/// All that come in time are admitted at their turn. All others are denied at once, with the time of their
/// turn.
#[test]
fn requests_and_jobs_wait_exactly_as_long_as_a_simulation_says() {
    let tally = CaseCounts::expecting(&[
        "admitted at once",
        "admitted after several windows",
        "denied, with several windows ahead",
        "denied under a log",
        "denied under a counter",
    ]);
    let config = ProptestConfig::with_cases(300);
    seed::property("turns", config, cases(), |case| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let clock = TokioClock::new();
            let Some(expected) = simulate(&case, clock.now().as_micros()) else { return };
            let memory = MemoryStore::new(MemoryConfig::default().clock(clock));
            let limiter = match case.is_remote {
                true => Limiter::new(PendingStore(memory)),
                false => Limiter::new(memory),
            };
            let policy = policy("p", &case.quota.to_string());
            let found = play(&case, limiter, &policy).await;
            assert_eq!(found.len(), expected.len());
            for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let at = format!("{index}: {found:?}, expected {expected:?}");
                assert_eq!(found.is_admitted, expected.is_admitted, "{at}");
                let window = case.quota.window();
                if expected.is_admitted {
                    assert!(found.elapsed >= expected.wait, "{at}");
                    assert!(found.elapsed <= expected.wait + SLACK, "{at}");
                    tally.count_if(expected.wait.is_zero(), "admitted at once");
                    tally.count_if(expected.wait > 2 * window, "admitted after several windows");
                } else {
                    assert!(found.elapsed <= Duration::from_millis(2), "{at}");
                    let (wait, error) = found.retry_after.expect("a wait");
                    assert!(wait + SLACK >= expected.wait, "{at}");
                    assert!(wait <= expected.wait + SLACK + error, "{at}");
                    let is = |algorithm| case.quota.algorithm() == algorithm;
                    tally
                        .count_if(expected.wait > 2 * window, "denied, with several windows ahead");
                    tally.count_if(is(Algorithm::SlidingLog), "denied under a log");
                    tally.count_if(is(Algorithm::SlidingCounter), "denied under a counter");
                }
            }
        });
        Ok(())
    });
    tally.report("turns");
}

/// A burst of 100 requests under `20/s`, which may wait for 2 s.
#[tokio::test(start_paused = true)]
async fn of_a_burst_all_that_come_in_time_are_served_and_the_others_are_denied_at_once() {
    let groups = |times: [u64; 3]| times.iter().flat_map(|it| [*it; 20]).collect();
    for (algorithm, expected) in [
        ("", groups([0, 1_000, 2_000])),
        // The units of a bucket come back a window after its end, and the buckets end each 200 ms.
        (" sliding-buckets(5)", groups([0, 1_100, 2_300])),
        // The periods end at 0.9 s and 1.9 s.
        (" fixed-window", groups([0, 900, 1_900])),
        (" token-bucket(20)", (0..60).map(|it: u64| 50 * it.saturating_sub(19)).collect()),
    ] {
        let expected: Vec<u64> = expected;
        for is_remote in [false, true] {
            let case = Case {
                quota: format!("20/s{algorithm}").parse().unwrap(),
                caller: Caller::Layer,
                is_remote,
                max: Duration::from_secs(2),
                arrivals: vec![(Duration::ZERO, 1); 100],
            };
            let clock = TokioClock::at(1_700_000_000_100_000);
            let memory = MemoryStore::new(MemoryConfig::default().clock(clock));
            let limiter = match is_remote {
                true => Limiter::new(PendingStore(memory)),
                false => Limiter::new(memory),
            };
            let found = play(&case, limiter, &policy("p", &case.quota.to_string())).await;
            for (index, found) in found.iter().enumerate() {
                let at = format!("{algorithm}, remote: {is_remote}, {index}: {found:?}");
                match expected.get(index) {
                    Some(turn) if *turn <= 2_000 => {
                        assert!(found.is_admitted, "{at}");
                        let millis = found.elapsed.as_millis() as u64;
                        assert!((*turn..turn + 50).contains(&millis), "{at}, expected {turn} ms");
                    }
                    _ => {
                        assert!(!found.is_admitted, "{at}");
                        assert!(found.elapsed < Duration::from_millis(5), "{at}");
                    }
                }
            }
            // Denied requests hold no place, so each gets the time of the next turn.
            assert_eq!(found[60].retry_after.expect("a wait").0.as_secs(), 3, "{algorithm}");
            assert_eq!(found[99].retry_after.expect("a wait").0.as_secs(), 3, "{algorithm}");
        }
    }
}

/// A request that costs more than there can be is denied as such, also behind others.
#[tokio::test(start_paused = true)]
async fn a_cost_over_capacity_is_no_wait_behind_others() {
    for is_job in [false, true] {
        let limiter =
            Limiter::new(MemoryStore::new(MemoryConfig::default().clock(TokioClock::new())));
        let policy = policy("p", "3/s");
        let _ = limiter.check(policy.charge("all", 3)).await.unwrap();
        let first = tokio::spawn({
            let (limiter, policy) = (limiter.clone(), policy.clone());
            async move {
                let turn = limiter.until_ready(policy.charge("all", 1), 60 * SLACK).await;
                turn.is_ok_and(|decision| decision.is_allowed())
            }
        });
        tokio::task::yield_now().await;
        let start = Instant::now();
        if is_job {
            let decision = limiter.until_ready(policy.charge("all", 4), 60 * SLACK).await.unwrap();
            let Decision::Denied(denied) = decision else { panic!("4 of 3") };
            assert!(denied.is_over_capacity());
        } else {
            let rule = Rule::new(policy, |_| "all").cost(|_| 4);
            let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(String::new())) });
            let service = RateLimitLayer::new(limiter, rule).delay(60 * SLACK).layer(inner);
            assert_eq!(service.oneshot(get("/")).await.unwrap().status(), 403);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(first.await.unwrap());
    }
}
