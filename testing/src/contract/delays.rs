//! Requests over their limit that wait inside the layer.

use std::{
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

use super::checks::START;
use crate::{
    Fixture, micros, policy,
    web::{http1, serve},
};

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
