//! Requests over their limit that wait inside the layer: promises of each store together with the layer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{Router, routing::get};
use http::request::Parts;
use plimsoll::{RateLimitLayer, Rule};
use tokio::time::{Instant, sleep};

use crate::{
    Fixture,
    calm::on_a_calm_machine,
    micros, policy,
    web::{http1, serve},
};
use plimsoll_contract::checks::START;

/// All of them are admitted, and no faster than the quota allows by the clock of the store.
pub async fn requests_over_their_limit_wait(fixture: Fixture) {
    const REQUESTS: u64 = 5;
    const MICROS_PER_UNIT: u64 = 20_000;
    fixture.set(START);
    let (now, admitted) = (Arc::new(AtomicU64::new(START)), Arc::new(Mutex::new(Vec::new())));
    let (clock, log) = (Arc::clone(&now), Arc::clone(&admitted));
    let handler = async move || log.lock().expect("no panic").push(clock.load(SeqCst));
    let rule = Rule::new(policy("p", "50/s token-bucket(1)"), |_: &Parts| "all");
    let layer = RateLimitLayer::new(fixture.limiter.clone(), rule).delay(Duration::from_secs(60));
    let address = serve(Router::new().route("/", get(handler)).layer(layer)).await;
    let request = || tokio::spawn(async move { http1(address).await.get("/").await.status });
    let requests: Vec<_> = (0..REQUESTS).map(|_| request()).collect();
    // The clock of the store keeps pace with the one by which the requests wait.
    let start = Instant::now();
    while !requests.iter().all(|request| request.is_finished()) {
        sleep(Duration::from_millis(1)).await;
        let time = START + micros(start.elapsed());
        now.store(time, SeqCst);
        fixture.set(time);
    }
    for request in requests {
        assert_eq!(request.await.expect("no panic"), 200);
    }
    let admitted = admitted.lock().expect("no panic");
    for (units, time) in (0..REQUESTS).zip(&*admitted) {
        assert!(*time >= START + units * MICROS_PER_UNIT, "{units} units: {admitted:?}");
    }
}

/// Serves all requests of a burst whose turn comes within the longest delay, and denies the others at once.
pub async fn requests_that_would_come_too_late_are_denied_at_once(fixture: Fixture) {
    let attempts = AtomicU64::new(0);
    on_a_calm_machine(async || burst(&fixture, attempts.fetch_add(1, SeqCst)).await).await;
}

/// Returns an error if a denial came late, or a turn.
async fn burst(fixture: &Fixture, attempt: u64) -> Result<(), String> {
    const LIMIT: u64 = 10;
    const WINDOW: Duration = Duration::from_millis(500);
    /// Two windows, and half a window by which timers and the store may be late.
    const DELAY: Duration = Duration::from_millis(1_250);
    fixture.set(START);
    let start = Instant::now();
    let mut tasks = Vec::new();
    for algorithm in ["", " fixed-window", " token-bucket(10)", " leased(20ms)"] {
        let policy = policy("p", &format!("{LIMIT}/{}ms{algorithm}", WINDOW.as_millis()));
        let rule = Rule::new(policy, move |_: &Parts| (algorithm, attempt));
        let layer = RateLimitLayer::new(fixture.limiter.clone(), rule).delay(DELAY);
        let address = serve(Router::new().route("/", get(async || ())).layer(layer)).await;
        for _ in 0..5 * LIMIT {
            tasks.push(tokio::spawn(async move {
                let mut client = http1(address).await;
                let sent = Instant::now();
                let status = client.get("/").await.status;
                (algorithm, status, sent.elapsed())
            }));
        }
    }
    // The clock of the store keeps pace with the one by which the requests wait.
    while !tasks.iter().all(|task| task.is_finished()) {
        sleep(Duration::from_millis(1)).await;
        fixture.set(START + micros(start.elapsed()));
    }
    let mut served = HashMap::<_, u64>::new();
    for task in tasks {
        let (algorithm, status, elapsed) = task.await.expect("no panic");
        match status {
            200 => *served.entry(algorithm).or_default() += 1,
            429 if elapsed < WINDOW => {}
            429 => return Err(format!("{algorithm}: denied after {elapsed:?}")),
            other => panic!("status {other}"),
        }
    }
    // The first window, and those that begin within the delay. A bucket refills in between.
    for (algorithm, least, most) in [
        ("", 3 * LIMIT, 3 * LIMIT),
        (" fixed-window", 3 * LIMIT, 4 * LIMIT),
        (" token-bucket(10)", 3 * LIMIT, 4 * LIMIT),
        (" leased(20ms)", 2 * LIMIT, 3 * LIMIT),
    ] {
        let served = served.get(algorithm).copied().unwrap_or_default();
        assert!(served <= most, "{algorithm}: {served}");
        if served < least {
            return Err(format!("{algorithm}: {served} served"));
        }
    }
    Ok(())
}
