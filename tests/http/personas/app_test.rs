//! The tests of an application that moves the time of its limits: by hand, and with tokio's paused
//! time. The application takes its limiter as a parameter, so that its tests pass another one.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    routing::get,
};
use plimsoll::{
    Decision, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule, by,
    clock::{Clock, ManualClock, TokioClock},
    memory::MemoryConfig,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tower::ServiceExt;

/// The application: each account may search 3 times a minute.
fn app(limiter: Limiter) -> Router {
    let search = Policy::new("search", Quota::per_minute(3)).expect("a valid name");
    let layer = RateLimitLayer::new(limiter, Rule::new(search, by::header("x-account")));
    Router::new().route("/search", get(|| async { "found" })).layer(layer)
}

/// A job of the application: it exports as fast as the upstream service allows.
async fn export(limiter: &Limiter, pages: u32) -> Result<u32, plimsoll::Error> {
    let upstream = Policy::new("upstream", "10/min token-bucket(1)")?;
    let mut exported = 0;
    for _ in 0..pages {
        let turn = limiter.until_ready(upstream.charge("export", 1), Duration::from_secs(60));
        if let Decision::Allowed(_) = turn.await? {
            exported += 1;
        }
    }
    Ok(exported)
}

fn limiter_with(clock: impl Clock) -> Limiter {
    Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock)))
}

/// Serves the application on a free port.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends a request over a connection of its own, and returns the head of the response.
async fn search(address: SocketAddr, account: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /search HTTP/1.1\r\nhost: app\r\nx-account: {account}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

fn is_ok(response: &str) -> bool {
    response.starts_with("HTTP/1.1 200 ")
}

#[tokio::test]
async fn a_manual_clock_goes_through_the_layer() {
    let clock = ManualClock::at(1_700_000_000_000_000);
    let address = serve(app(limiter_with(clock.clone()))).await;
    for _ in 0..3 {
        assert!(is_ok(&search(address, "alice").await));
        clock.advance(Duration::from_secs(10));
    }
    // The first request leaves the window 60 s after it was made, and 30 s have passed.
    let denied = search(address, "alice").await;
    assert!(
        denied.starts_with("HTTP/1.1 429 ") && denied.contains("retry-after: 30\r\n"),
        "{denied}"
    );
    assert!(is_ok(&search(address, "bob").await), "a budget of his own");

    clock.advance(Duration::from_secs(30));
    assert!(is_ok(&search(address, "alice").await));
    assert!(!is_ok(&search(address, "alice").await));
}

#[tokio::test(start_paused = true)]
async fn paused_time_goes_through_the_layer() {
    let app = app(limiter_with(TokioClock::new()));
    let status = async || {
        let request = Request::get("/search").header("x-account", "alice");
        app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
    };
    for _ in 0..3 {
        assert_eq!(status().await, StatusCode::OK);
    }
    tokio::time::advance(Duration::from_millis(59_999)).await;
    assert_eq!(status().await, StatusCode::TOO_MANY_REQUESTS);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(status().await, StatusCode::OK);
}

/// The runtime moves a paused clock while requests are served over a socket.
#[tokio::test(start_paused = true)]
async fn paused_time_goes_through_a_server() {
    let address = serve(app(limiter_with(TokioClock::new()))).await;
    for _ in 0..3 {
        assert!(is_ok(&search(address, "alice").await));
    }
    assert!(!is_ok(&search(address, "alice").await));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(is_ok(&search(address, "alice").await));
}

/// The job waits 6 s between two pages. With paused time, the test does not wait.
#[tokio::test(start_paused = true)]
async fn a_job_waits_in_paused_time() {
    let begin = Instant::now();
    assert_eq!(export(&limiter_with(TokioClock::new()), 11).await.unwrap(), 11);
    assert_eq!(begin.elapsed().as_secs(), 60);
}

/// A fixed window ends at the same time in each run.
#[tokio::test(start_paused = true)]
async fn a_clock_that_begins_at_a_given_time() {
    // 10 s before midnight.
    let clock = TokioClock::at((86_400 - 10) * 1_000_000);
    let limiter = limiter_with(clock);
    let daily = Policy::new("daily", "1/d fixed-window").unwrap();
    let is_allowed = async || limiter.check(daily.charge("alice", 1)).await.unwrap().is_allowed();
    assert!(is_allowed().await);
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(!is_allowed().await);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(is_allowed().await);
}
