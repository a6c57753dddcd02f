//! A login that blocks an account for 15 minutes after ten denials in an hour.

use std::time::Duration;

use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::get,
};
use plimsoll::{
    Decision, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule, by, clock::ManualClock,
    layer::Decisions, memory::MemoryConfig,
};
use plimsoll_testing::web::{Client, http1, serve};

const BLOCK: Duration = Duration::from_secs(15 * 60);

#[derive(Clone)]
struct Guard {
    limiter: Limiter,
    denials: Policy,
}

/// Counts the denials of each account, and blocks the account at the tenth.
async fn block_abusers(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let decided = response.extensions().get::<Decisions>();
    if let Some(decision) = decided.and_then(|decided| decided.decisions().next())
        && !decision.is_allowed()
        && let Some(outcome) = decision.binding()
    {
        let denial = guard.denials.charge(*outcome.charge().key(), 1);
        // Later denials do not extend the block.
        if let Ok(Decision::Allowed(counted)) = guard.limiter.check(denial).await
            && counted.remaining() == Some(0)
            && let Err(error) = guard.limiter.block(outcome.charge().clone(), BLOCK).await
        {
            eprintln!("the account is not blocked: {error}");
        }
    }
    response
}

fn app(clock: &ManualClock) -> Router {
    let limiter = Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock.clone())));
    let logins = Rule::new(policy("logins", Quota::per_minute(5)), by::header("x-account"));
    let guard = Guard { limiter: limiter.clone(), denials: policy("denials", Quota::per_hour(10)) };
    Router::new()
        .route("/login", get(|| async { "welcome" }))
        .layer(RateLimitLayer::new(limiter, logins).visible())
        .layer(from_fn_with_state(guard, block_abusers))
}

fn policy(name: &str, quota: Quota) -> Policy {
    Policy::new(name, quota).unwrap()
}

async fn login(client: &mut Client, account: &str) -> (u16, Option<u64>) {
    let reply = client.get_with("/login", &[("x-account", account)]).await;
    let wait = reply.headers.get("retry-after");
    (reply.status, wait.map(|wait| wait.to_str().unwrap().parse().unwrap()))
}

#[tokio::test]
async fn an_abusive_login_is_blocked_for_15_minutes() {
    let clock = ManualClock::at(1_700_000_000_000_000);
    let mut client = http1(serve(app(&clock)).await).await;
    for attempt in 1..=15 {
        let expected = if attempt <= 5 { (200, None) } else { (429, Some(60)) };
        assert_eq!(login(&mut client, "mallory").await, expected, "attempt {attempt}");
    }
    // The tenth denial blocked the account: now the end of the block is in the headers.
    let reply = client.get_with("/login", &[("x-account", "mallory")]).await;
    assert_eq!((reply.status, &reply.headers["retry-after"]), (429, &"900".parse().unwrap()));
    assert_eq!(reply.headers["ratelimit"], "\"logins\";r=0;t=900");
    assert_eq!(login(&mut client, "alice").await, (200, None));

    clock.advance(BLOCK / 3);
    assert_eq!(login(&mut client, "mallory").await, (429, Some(600)));
    clock.advance(BLOCK * 2 / 3);
    assert_eq!(login(&mut client, "mallory").await, (200, None));
}
