//! A policy on trial beside a rule: it never shows to clients, and is adjusted by the response.

use std::{convert::Infallible, time::Duration};

use http::{Response, StatusCode};
use plimsoll::{Charge, Limiter, Policy, RateLimitLayer, Rule};
use tower::{Layer, ServiceExt, service_fn};

use super::{get, limiter, policy, rule, text};

async fn left(limiter: &Limiter, policy: &Policy) -> u64 {
    let decision = limiter.peek(policy.charge("everybody", 0)).await.unwrap();
    decision.binding().unwrap().standing().remaining
}

/// Sends a request through the layer.
async fn send(layer: &RateLimitLayer, status: StatusCode) -> (u16, http::HeaderMap, String) {
    let inner = service_fn(move |_| async move {
        let response = Response::builder().status(status).body(String::new()).unwrap();
        Ok::<_, Infallible>(response)
    });
    text(layer.layer(inner).oneshot(get("/")).await.unwrap()).await
}

#[tokio::test]
async fn a_rule_and_its_trial_count_each_by_itself() {
    let (limiter, _clock) = limiter();
    let trial = policy("trial", "4/min");
    let layer = RateLimitLayer::new(limiter.clone(), rule("live", "2/min").trial(trial.clone()));
    let layer = layer.and(rule("other", "100/min"));
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let (status, headers, body) = send(&layer, StatusCode::OK).await;
        statuses.push(status);
        let shown = format!("{headers:?} {body}");
        assert!(shown.contains("live") && !shown.contains("trial"), "{shown}");
    }
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429]);
    let counts = trial.trial_counts();
    assert_eq!((counts.allowed_by_both, counts.allowed_by_trial_only), (2, 2));
    assert_eq!((counts.allowed_by_live_only, counts.denied_by_both), (0, 2));
}

#[tokio::test]
async fn the_response_adjusts_the_trial_too() {
    let (limiter, _clock) = limiter();
    let trial = policy("trial", "4/min");
    let rule = rule("live", "1/min").refund_if(|head| head.status.is_success());
    let layer = RateLimitLayer::new(limiter.clone(), rule.trial(trial.clone()));
    for (status, expected) in [
        (StatusCode::OK, 4),
        (StatusCode::UNAUTHORIZED, 3),
        // The live rule denies it, so no response adjusts it.
        (StatusCode::OK, 2),
    ] {
        let _ = send(&layer, status).await;
        assert_eq!(left(&limiter, &trial).await, expected);
    }
}

/// A layer that delays asks the limiter again and again. The trial is decided once.
#[tokio::test(start_paused = true)]
async fn a_delayed_request_is_decided_once_by_the_trial() {
    let clock = plimsoll::clock::TokioClock::new();
    let store = plimsoll::MemoryStore::new(plimsoll::memory::MemoryConfig::default().clock(clock));
    let limiter = Limiter::new(store);
    let trial = policy("trial", "100/h");
    let rule = rule("live", "1/s").trial(trial.clone());
    let layer = RateLimitLayer::new(limiter.clone(), rule).delay(Duration::from_secs(3));
    let requests = (0..6).map(|_| send(&layer, StatusCode::OK));
    let replies = futures_util::future::join_all(requests).await;
    let denied = replies.iter().filter(|reply| reply.0 == 429).count();
    assert_eq!(left(&limiter, &trial).await, 94);
    let counts = trial.trial_counts();
    assert_eq!(counts.allowed_by_both + counts.allowed_by_trial_only, 6);
    assert_eq!(counts.allowed_by_trial_only, denied as u64);
    assert!(denied > 0 && denied < 6, "{denied}");
}

#[test]
#[should_panic(expected = "a layer has at most 32 rules")]
fn a_layer_has_room_for_32_rules_and_trials() {
    let (limiter, _clock) = limiter();
    let on_trial = |number: usize| -> Rule {
        let name = format!("p{number}");
        rule(&name, "1/min").trial(policy(&format!("{name}-trial"), "2/min"))
    };
    let layer = (1..16).fold(RateLimitLayer::new(limiter, on_trial(0)), |layer, number| {
        layer.and(on_trial(number))
    });
    let _ = layer.and(rule("one-more", "1/min"));
}

/// A shadow and a trial of the same charge differ only in what they count.
#[test]
fn the_last_of_shadow_and_trial_applies() {
    let policy = policy("p", "1/min");
    let of = |charge: Charge<'_>| (charge.is_live(), charge.is_trial());
    assert_eq!(of(policy.charge("a", 1)), (true, false));
    assert_eq!(of(policy.charge("a", 1).trial().shadow()), (false, false));
    assert_eq!(of(policy.charge("a", 1).shadow().trial()), (false, true));
}
