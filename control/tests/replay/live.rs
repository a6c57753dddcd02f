//! A live trial and the layer of a service, against a replay of their logs.

use std::{
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router, body::Body, extract::Request, middleware::from_fn, response::Response, routing::get,
};
use plimsoll::{
    Limiter, MemoryStore, Policy, RateLimitLayer, Rule, by,
    clock::{Clock, ManualClock},
    memory::MemoryConfig,
};
use plimsoll_control::{Config, Format};
use plimsoll_testing::servers::directory;
use serde_json::json;
use tower::ServiceExt;

use super::{Log, START, candidate, replay};

/// Asks a service in bursts and pauses of several clients, and returns its log as JSON lines, and the statuses.
async fn ask(app: Router, clock: &ManualClock, requests: u64) -> (String, Vec<u16>) {
    let log = Arc::new(Mutex::new(String::new()));
    let (lines, times) = (Arc::clone(&log), clock.clone());
    let logged = app.layer(from_fn(move |request: Request, next: axum::middleware::Next| {
        let (lines, at) = (Arc::clone(&lines), times.now().as_micros());
        async move {
            let peer = request.extensions().get::<SocketAddr>().map(|peer| peer.ip().to_string());
            let key = request.headers().get("x-api-key").and_then(|it| it.to_str().ok());
            let mut line = json!({ "time": at, "remote_addr": peer, "method": request.method().as_str(),
                "uri": request.uri().to_string(), "http_x_api_key": key });
            let response: Response = next.run(request).await;
            line["status"] = response.status().as_u16().into();
            lines.lock().unwrap().push_str(&format!("{line}\n"));
            response
        }
    }));
    let mut statuses = Vec::new();
    let mut random = 7_u64;
    for _ in 0..requests {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = random >> 33;
        // Bursts in the same microsecond, and pauses of up to 4 s.
        let pause = if number.is_multiple_of(3) { number % 4_000_000 } else { 0 };
        clock.set(clock.now().as_micros() + pause);
        let mut request =
            Request::builder().uri(if number.is_multiple_of(5) { "/health" } else { "/api?q=1" });
        if number.is_multiple_of(2) {
            request = request.header("x-api-key", format!("key-{}", number % 7));
        }
        let mut request = request.body(Body::empty()).unwrap();
        request
            .extensions_mut()
            .insert(SocketAddr::from(([192, 0, 2, (number % 11) as u8], 4_711)));
        statuses.push(logged.clone().oneshot(request).await.unwrap().status().as_u16());
    }
    let log = log.lock().unwrap().clone();
    (log, statuses)
}

fn service() -> (ManualClock, Limiter, Router) {
    let clock = ManualClock::at(START);
    let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
    let app =
        Router::new().route("/api", get(|| async { "" })).route("/health", get(|| async { "" }));
    (clock, Limiter::new(store), app)
}

fn written(log: &str) -> Log {
    let folder = directory();
    let path = folder.join("access.json");
    fs::write(&path, log).unwrap();
    Log { folder, path }
}

#[tokio::test]
async fn a_live_trial_and_a_replay_agree_to_the_request() {
    for algorithm in
        ["sliding-log", "sliding-buckets(6)", "sliding-counter", "token-bucket(2)", "fixed-window"]
    {
        let (clock, limiter, app) = service();
        let quota = format!("2/10s {algorithm}");
        let trial = Policy::new("stricter", quota.as_str()).unwrap();
        let live = Rule::new(Policy::new("api", "1000/min").unwrap(), by::peer_ip());
        let layer = RateLimitLayer::new(limiter, live.trial(trial.clone()));
        let (log, _) = ask(app.layer(layer), &clock, 3_000).await;
        let counts = trial.trial_counts();
        assert_eq!(counts.allowed_by_both + counts.allowed_by_live_only, 3_000);
        assert!(counts.allowed_by_live_only > 100, "{counts:?}");
        let report = written(&log).replay(&["--limit", &quota]);
        let row = &report["candidates"][0];
        assert_eq!(row["algorithm"], algorithm);
        assert_eq!(row["denied"], counts.allowed_by_live_only, "{quota}");
    }
}

#[tokio::test]
async fn the_rules_of_a_file_deny_the_same_requests_as_in_service() {
    let text = r#"
        exempt = ["/health"]
        [policies]
        per-key = "8/10s"
        per-address = "9/10s token-bucket(9)"
        looser = "20/10s"
        [[rules]]
        policy = "per-key"
        key = { first_of = [{ header = "x-api-key" }, "anonymous"] }
        costs = { "GET /api" = 2 }
        [[rules]]
        policy = "per-address"
        key = "client_ip"
        trials = ["looser"]
    "#;
    let (clock, limiter, app) = service();
    let config = Config::from_text(text, Format::Toml).unwrap();
    let app = app.layer(config.layer(&limiter).unwrap());
    let (log, statuses) = ask(app, &clock, 3_000).await;
    let denied = statuses.iter().filter(|status| **status == 429).count();
    let log = written(&log);
    let file = log.folder.join("limits.toml");
    fs::write(&file, text).unwrap();
    let report = replay(&log.path, &["--limits", file.to_str().unwrap()]);
    assert!(denied > 300, "{denied}");
    assert_eq!(report["denied"], denied);
    assert_eq!(report["requests"], 3_000);
    let looser = config.registry().get("looser").unwrap().policy().trial_counts();
    let rows = report["candidates"].as_array().unwrap();
    let row = rows.iter().find(|row| row["policy"] == "looser").unwrap();
    assert_eq!(row["denied"], looser.allowed_by_live_only + looser.denied_by_both);
    assert_eq!(row["kind"], "trial");
    let notes = report["notes"].to_string();
    // Half of the requests have no key. Requests to /health are exempt.
    assert!(
        notes.contains("requests have no header x-api-key") && notes.contains("are exempt"),
        "{notes}"
    );
    assert_eq!(candidate(&report, "token-bucket")["policy"], "per-address");
}
