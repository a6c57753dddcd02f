//! Sequences that any correct implementation reproduces.

use std::time::Duration;

use plimsoll::{Algorithm, Decision, Policy, Quota, store::Verdict};
use serde_json::Value;

use super::checks::{check, remaining};
use crate::{Fixture, micros, policy};

macro_rules! vector {
    ($name:literal) => {
        serde_json::from_str::<Value>(include_str!(concat!("../vectors/", $name, ".json")))
            .expect("valid JSON")
    };
}

pub async fn token_bucket(fixture: Fixture) {
    run(&fixture, &vector!("token_bucket_1_per_s_burst_5")).await;
}

pub async fn sliding_log_weighted(fixture: Fixture) {
    run(&fixture, &vector!("sliding_log_weighted")).await;
}

pub async fn boundary_of_the_fixed_window(fixture: Fixture) {
    run(&fixture, &vector!("boundary_fixed_window")).await;
}

pub async fn boundary_of_the_sliding_log(fixture: Fixture) {
    run(&fixture, &vector!("boundary_sliding_log")).await;
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().expect("a number")
}

async fn run(fixture: &Fixture, vector: &Value) {
    let algorithm = match vector["algorithm"].as_str().expect("a name") {
        "token_bucket" => Algorithm::TokenBucket { burst: number(vector, "burst") },
        "sliding_log" => Algorithm::SlidingLog,
        "fixed_window" => Algorithm::FixedWindow,
        other => panic!("{other}"),
    };
    let window = Duration::from_micros(number(vector, "window"));
    let limit = number(vector, "limit");
    let quota = Quota::new(limit, window, algorithm).expect("valid");
    let policy = Policy::new("vector", quota).expect("valid");
    for step in vector["steps"].as_array().expect("steps") {
        fixture.set(step["t"].as_u64().expect("a time"));
        let mut allowed = 0;
        for _ in 0..step["repeat"].as_u64().unwrap_or(1) {
            let charge = policy.charge("alice", step["cost"].as_u64().expect("a cost"));
            let decision = fixture.limiter.check(charge).await.expect("an answer");
            allowed += u64::from(decision.is_allowed());
            compare(step, &decision);
        }
        assert_eq!(allowed, step["allowed_count"].as_u64().unwrap_or(allowed), "{step}");
    }
}

/// Compares the outcome with the values that the step expects.
fn compare(step: &Value, decision: &Decision<'_>) {
    let standing = decision.outcomes().next().expect("an outcome").standing();
    if let Some(allowed) = step["allowed"].as_bool() {
        assert_eq!(decision.is_allowed(), allowed, "{step}");
    }
    if let Some(remaining) = step["remaining"].as_u64() {
        assert_eq!(standing.remaining, remaining, "{step}");
    }
    if let Some(reset) = step["reset"].as_u64() {
        assert_eq!(micros(standing.reset_after), reset, "{step}");
    }
    if let Some(retry) = step.get("retry") {
        assert_eq!(standing.retry_after.map(micros), retry.as_u64(), "{step}");
        let over =
            decision.outcomes().next().expect("an outcome").verdict() == Verdict::OverCapacity;
        assert_eq!(over, !decision.is_allowed() && retry.is_null(), "{step}");
    }
}

/// The estimate rounds up.
pub async fn sliding_counter_estimate(fixture: Fixture) {
    const LIMIT: u64 = 1_000;
    let vector = vector!("sliding_counter_estimate");
    for (index, case) in vector["cases"].as_array().expect("cases").iter().enumerate() {
        let window = number(case, "window");
        let quota = Quota::new(LIMIT, Duration::from_micros(window), Algorithm::SlidingCounter);
        let policy = Policy::new(&format!("case-{index}"), quota.expect("valid")).expect("valid");
        let period = 400_000 * window;
        fixture.set(period);
        assert!(check(&fixture, &policy, number(case, "previous")).await.is_allowed());
        fixture.set(period + window + number(case, "elapsed"));
        assert!(check(&fixture, &policy, number(case, "current")).await.is_allowed());
        let left = remaining(&fixture, &policy).await;
        let rest =
            u128::from(number(case, "previous")) * u128::from(window - number(case, "elapsed"));
        let rounded = u64::from(!rest.is_multiple_of(u128::from(window)));
        assert_eq!(LIMIT - left, number(case, "estimate") + rounded, "{case}");
    }
}

/// 50 per 10 s, and 50 requests one second either side of an edge of the fixed window.
pub async fn full_bursts_either_side_of_an_edge(fixture: Fixture) {
    let edge = 1_700_000_000_000_000;
    for (kind, most) in [("fixed-window", 100), ("sliding-log", 50)] {
        let policy = policy(kind, &format!("50/10s {kind}"));
        let mut admitted = 0;
        for time in [edge - 1_000_000, edge + 1_000_000] {
            fixture.set(time);
            for _ in 0..50 {
                let decision = fixture.limiter.check(policy.charge("alice", 1)).await;
                admitted += u64::from(decision.expect("an answer").is_allowed());
            }
        }
        assert_eq!(admitted, most, "{kind}");
    }
}
