//! Requests over their limit that wait inside the layer.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, routing};
use bytes::Bytes;
use http::{Request, Response, header::RETRY_AFTER};
use http_body_util::Empty;
use plimsoll::{
    Limiter, MemoryStore, OnFailure, Policy, RateLimitLayer, Rule, by, clock::TokioClock,
    memory::MemoryConfig,
};
use plimsoll_testing::{
    calm::on_a_calm_machine,
    web::{http1, serve},
};
use tokio::{
    task::{JoinHandle, yield_now},
    time::{Instant, sleep},
};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneService};

use super::{PendingStore, UnavailableStore, get, policy};

/// The requests that the inner service has seen: their paths, and the times in milliseconds.
type Seen = Arc<Mutex<Vec<(String, u64)>>>;
type Service = BoxCloneService<Request<Empty<Bytes>>, (u16, Option<u64>), Infallible>;

fn memory() -> MemoryStore {
    MemoryStore::new(MemoryConfig::default().clock(TokioClock::new()))
}

/// Returns a service behind a layer. Its output is the status, and `Retry-After` in seconds.
fn service(layer: RateLimitLayer) -> (Service, Seen) {
    let (seen, start) = (Seen::default(), Instant::now());
    let log = seen.clone();
    let inner = service_fn(move |request: Request<Empty<Bytes>>| {
        let millis = start.elapsed().as_millis() as u64;
        log.lock().unwrap().push((request.uri().path().to_owned(), millis));
        async { Ok::<_, Infallible>(Response::new(String::new())) }
    });
    let outer = layer.layer(inner).map_response(|response| {
        let seconds = response.headers().get(RETRY_AFTER);
        let seconds = seconds.map(|value| value.to_str().unwrap().parse().unwrap());
        (response.status().as_u16(), seconds)
    });
    (outer.boxed_clone(), seen)
}

fn layer(limiter: &Limiter, quota: &str, max: Duration) -> RateLimitLayer {
    let rule = Rule::new(policy("p", quota), by::header("x-api-key"));
    RateLimitLayer::new(limiter.clone(), rule).delay(max)
}

fn request(key: &str, path: &str) -> Request<Empty<Bytes>> {
    let mut request = get(path);
    request.headers_mut().insert("x-api-key", key.parse().unwrap());
    request
}

/// Sends a request that has arrived when this function returns.
async fn send(service: &Service, key: &str, path: &str) -> JoinHandle<(u16, Option<u64>)> {
    let call = service.clone().oneshot(request(key, path));
    let task = tokio::spawn(async { call.await.unwrap() });
    for _ in 0..3 {
        yield_now().await;
    }
    task
}

const LONG: Duration = Duration::from_secs(1_000);

#[tokio::test(start_paused = true)]
async fn requests_wait_in_the_order_in_which_they_came() {
    for remote in [false, true] {
        let limiter = match remote {
            true => Limiter::new(PendingStore(memory())),
            false => Limiter::new(memory()),
        };
        let (service, seen) = service(layer(&limiter, "2/s token-bucket(3)", LONG));
        let mut tasks = Vec::new();
        for number in 0..50 {
            tasks.push(send(&service, "alice", &format!("/{number}")).await);
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), (200, None));
        }
        let seen = seen.lock().unwrap();
        for (number, (path, millis)) in seen.iter().enumerate() {
            assert_eq!(path, &format!("/{number}"), "remote: {remote}");
            // Three at once, and then one each half second. A timer wakes up to 1 ms late.
            let exact = 500 * (number as u64).saturating_sub(2);
            assert!((exact..exact + 60).contains(millis), "{number} at {millis} ms");
        }
        assert_eq!(seen.len(), 50);
    }
}

/// A cheap request does not overtake a dear one that waits, although its unit is free.
/// Under a concurrency limit, requests wait until the work of others ends, in the order in which they came.
#[tokio::test(start_paused = true)]
async fn requests_wait_for_units_in_flight() {
    let limiters = [Limiter::new(memory()), Limiter::new(PendingStore(memory()))];
    for limiter in limiters {
        let inner = service_fn(async |request: Request<Empty<Bytes>>| {
            let millis = request.uri().path().trim_start_matches('/').parse().unwrap();
            sleep(Duration::from_millis(millis)).await;
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let outer = layer(&limiter, "1 concurrent", Duration::from_secs(2)).layer(inner);
        let service = outer.map_response(|response| (response.status().as_u16(), None));
        let service: Service = service.boxed_clone();
        let start = Instant::now();
        let first = send(&service, "alice", "/1000").await;
        sleep(Duration::from_millis(1)).await;
        let second = send(&service, "alice", "/300").await;
        let gone = send(&service, "alice", "/300").await;
        let third = send(&service, "alice", "/1000").await;
        let late = send(&service, "alice", "/1").await;
        sleep(Duration::from_millis(1)).await;
        gone.abort();
        assert_eq!(first.await.unwrap().0, 200);
        assert_eq!(second.await.unwrap().0, 200);
        let elapsed = start.elapsed().as_millis();
        assert!((1_300..1_500).contains(&elapsed), "{elapsed}");
        // Its turn does not come within the longest delay.
        assert_eq!(late.await.unwrap().0, 429);
        let elapsed = start.elapsed().as_millis();
        assert!((1_850..2_050).contains(&elapsed), "{elapsed}");
        assert_eq!(third.await.unwrap().0, 200);
        assert_eq!(send(&service, "alice", "/1").await.await.unwrap().0, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_waits_behind_the_others() {
    let limiter = Limiter::new(memory());
    let rule = Rule::new(policy("p", "1/s token-bucket(2)"), by::header("x-api-key"))
        .cost(|parts| if parts.uri.path() == "/cheap" { 1 } else { 2 });
    let (service, seen) = service(RateLimitLayer::new(limiter, rule).delay(LONG));
    let first = send(&service, "alice", "/first").await;
    let dear = send(&service, "alice", "/dear").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let cheap = send(&service, "alice", "/cheap").await;
    for task in [first, dear, cheap] {
        assert_eq!(task.await.unwrap().0, 200);
    }
    let seen = seen.lock().unwrap();
    let seen: Vec<_> = seen.iter().map(|(path, millis)| (&**path, millis / 1_000)).collect();
    assert_eq!(seen, [("/first", 0), ("/dear", 2), ("/cheap", 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_would_come_too_late_is_denied_at_once() {
    let limiter = Limiter::new(memory());
    let (service, seen) = service(layer(&limiter, "1/s token-bucket(1)", Duration::from_secs(3)));
    let start = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..10 {
        tasks.push(send(&service, "alice", &format!("/{number}")).await);
    }
    for task in tasks.drain(4..) {
        // Three wait, so the units of this one come back in 4 s.
        assert_eq!(task.await.unwrap(), (429, Some(4)));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    for task in tasks {
        assert_eq!(task.await.unwrap().0, 200);
    }
    assert!(start.elapsed() >= Duration::from_secs(3));
    let seconds: Vec<_> = seen.lock().unwrap().iter().map(|(_, millis)| millis / 1_000).collect();
    assert_eq!(seconds, [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_each_other() {
    let limiter = Limiter::new(memory());
    let own = Rule::new(policy("own", "1/min"), by::header("x-api-key"));
    let all = Rule::new(policy("all", "100/s"), |_: &http::request::Parts| "all");
    let layer = RateLimitLayer::new(limiter.clone(), all).and(own).delay(LONG);
    let (service, _) = service(layer);
    // All requests share a key. Alice's requests wait for her own key.
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(send(&service, "alice", "/").await);
    }
    let start = Instant::now();
    for client in 0..50 {
        let task = send(&service, &format!("client-{client}"), "/").await;
        assert_eq!(task.await.unwrap().0, 200);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    for task in waiting {
        assert_eq!(task.await.unwrap().0, 200);
    }
    assert_eq!(start.elapsed().as_secs(), 240);
}

/// The first in the queue of a shared key gives up its place when it has to wait for its own key.
#[tokio::test(start_paused = true)]
async fn a_client_over_its_own_limit_holds_no_place_in_a_shared_queue() {
    let own = Rule::new(policy("own", "1/min"), by::header("x-api-key"));
    let all = Rule::new(policy("all", "2/s token-bucket(2)"), |_: &http::request::Parts| "all");
    let layer = RateLimitLayer::new(Limiter::new(memory()), all).and(own).delay(LONG);
    let (service, seen) = service(layer);
    let mut tasks = Vec::new();
    for (client, path) in [
        ("alice", "/1"),
        ("alice", "/2"),
        ("bob", "/3"),
        ("carol", "/4"),
        ("alice", "/5"),
        ("dave", "/6"),
    ] {
        tasks.push(send(&service, client, path).await);
    }
    for task in tasks {
        assert_eq!(task.await.unwrap().0, 200);
    }
    let seen = seen.lock().unwrap();
    let seen: Vec<_> = seen.iter().map(|(path, millis)| (&**path, millis / 100)).collect();
    let expected = [("/1", 0), ("/3", 0), ("/4", 5), ("/6", 10), ("/2", 600), ("/5", 1_200)];
    assert_eq!(seen, expected);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_spends_nothing() {
    let (limiter, policy) = (Limiter::new(memory()), policy("p", "1/s token-bucket(1)"));
    let rule = Rule::new(policy.clone(), by::header("x-api-key"));
    let (service, seen) = service(RateLimitLayer::new(limiter.clone(), rule).delay(LONG));
    let mut tasks = Vec::new();
    for number in 0..20 {
        tasks.push(send(&service, "alice", &format!("/{number}")).await);
    }
    // The first of those that wait, and all but the last.
    let last = tasks.pop().unwrap();
    for task in &tasks[1..] {
        task.abort();
    }
    assert_eq!(last.await.unwrap().0, 200);
    let paths = seen.lock().unwrap().clone();
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert!(paths[1].0 == "/19" && paths[1].1 < 1_100, "{paths:?}");
    // One unit is back each second, so two were spent.
    tokio::time::advance(Duration::from_millis(1_001)).await;
    let peek = limiter.peek(policy.charge("alice", 1)).await.unwrap();
    assert!(peek.is_allowed());
}

/// A client hangs up when its turn comes: before its request has been woken, while the store decides, and after.
/// The request spends nothing or is charged once, and those behind it do not wait for more than that.
#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_at_its_turn_is_charged_at_most_once() {
    for (remote, steps) in (0..12).flat_map(|steps| [(false, steps), (true, steps)]) {
        let limiter = match remote {
            true => Limiter::new(PendingStore(memory())),
            false => Limiter::new(memory()),
        };
        let policy = policy("p", "1/s token-bucket(1)");
        let rule = Rule::new(policy.clone(), by::header("x-api-key"));
        let (service, seen) = service(RateLimitLayer::new(limiter.clone(), rule).delay(LONG));
        let start = Instant::now();
        assert_eq!(send(&service, "alice", "/first").await.await.unwrap().0, 200);
        let hung_up = send(&service, "alice", "/hung-up").await;
        let behind = send(&service, "alice", "/behind").await;
        let last = send(&service, "alice", "/last").await;
        // A timer fires in the millisecond after its time.
        tokio::time::sleep_until(start + Duration::from_millis(999)).await;
        tokio::time::advance(Duration::from_millis(2)).await;
        for _ in 0..steps {
            yield_now().await;
        }
        hung_up.abort();
        assert_eq!((behind.await.unwrap().0, last.await.unwrap().0), (200, 200));
        let seen = seen.lock().unwrap().clone();
        let at = |path| seen.iter().find(|(seen, _)| seen == path).map(|(_, millis)| millis / 100);
        let case = format!("remote: {remote}, {steps} steps: {seen:?}");
        // One unit comes back each second. Units that the request has spent delay the others.
        let charged = at("/behind").expect("admitted") / 10 - 1;
        assert!(charged <= 1, "{case}");
        assert!(at("/hung-up").is_none() || charged == 1, "{case}");
        assert_eq!(at("/behind"), Some(10 + 10 * charged), "{case}");
        assert_eq!(at("/last"), Some(20 + 10 * charged), "{case}");
    }
}

/// Under a concurrency limit, the unit of a request whose client hangs up at its turn is not in flight.
#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_at_its_turn_leaves_no_unit_in_flight() {
    for (remote, steps) in (0..12).flat_map(|steps| [(false, steps), (true, steps)]) {
        let limiter = match remote {
            true => Limiter::new(PendingStore(memory())),
            false => Limiter::new(memory()),
        };
        let policy = policy("p", "1 concurrent expires(1h)");
        let rule = Rule::new(policy.clone(), by::header("x-api-key"));
        let (service, seen) = service(RateLimitLayer::new(limiter.clone(), rule).delay(LONG));
        let held = limiter.reserve(policy.charge("alice", 1)).await.unwrap();
        let hung_up = send(&service, "alice", "/hung-up").await;
        let behind = send(&service, "alice", "/behind").await;
        drop(held);
        tokio::time::advance(Duration::from_millis(101)).await;
        for _ in 0..steps {
            yield_now().await;
        }
        hung_up.abort();
        let start = Instant::now();
        assert_eq!(behind.await.unwrap().0, 200);
        let case = format!("remote: {remote}, {steps} steps: {:?}", seen.lock().unwrap());
        assert!(start.elapsed() < Duration::from_millis(500), "{case}");
        sleep(Duration::from_millis(100)).await;
        let peek = limiter.peek(policy.charge("alice", 1)).await.unwrap();
        assert!(peek.is_allowed(), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_most_wait() {
    let limiter = Limiter::new(memory());
    let (service, seen) = service(layer(&limiter, "1/s token-bucket(1)", 100 * LONG));
    let mut tasks = Vec::new();
    for number in 0..100_000_u32 {
        let call = service.clone().oneshot(request("alice", "/"));
        tasks.push(tokio::spawn(async { call.await.unwrap() }));
        if number % 100 == 0 {
            yield_now().await;
        }
    }
    // Until all have arrived. The first wait is 1 s long.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let (done, waiting): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|task| task.is_finished());
    assert_eq!((done.len(), waiting.len()), (90_000, 10_000));
    assert_eq!(seen.lock().unwrap().len(), 1);
    let mut denied = 0;
    for task in done {
        denied += u32::from(task.await.unwrap().0 == 429);
    }
    assert_eq!(denied, 89_999);
    // A client within its limit passes, also while the queue is full. One beyond it is denied.
    for status in [200, 429] {
        assert_eq!(send(&service, "bob", "/").await.await.unwrap().0, status);
    }
    waiting.iter().for_each(JoinHandle::abort);
    for task in waiting {
        assert!(task.await.unwrap_err().is_cancelled());
    }
    let start = Instant::now();
    assert_eq!(send(&service, "bob", "/").await.await.unwrap().0, 200, "there is room again");
    assert!(start.elapsed() > Duration::from_millis(900));
}

#[tokio::test(start_paused = true)]
async fn only_a_denial_waits() {
    let start = Instant::now();
    let rule = |on_failure| {
        Rule::new(policy("p", "1/min"), by::header("x-api-key")).on_failure(on_failure)
    };
    for (rule, first, second) in [
        (rule(OnFailure::Deny), 503, 503),
        (rule(OnFailure::Allow), 200, 200),
        (rule(OnFailure::Local).shadow(), 200, 200),
        (rule(OnFailure::Local).cost(|_| 2), 403, 403),
        (rule(OnFailure::Local).cost(|_| 0), 200, 200),
    ] {
        let is_down = first == 503 || first == second && format!("{rule:?}").contains("Allow");
        let limiter = match is_down {
            true => Limiter::new(UnavailableStore),
            false => Limiter::new(memory()),
        };
        let (service, _) = service(RateLimitLayer::new(limiter, rule).delay(LONG));
        for status in [first, second] {
            assert_eq!(send(&service, "alice", "/").await.await.unwrap().0, status);
        }
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// Real connections: they are served one after the other, and one that hangs up gives its turn away.
#[tokio::test]
async fn connections_wait_for_their_turn() {
    on_a_calm_machine(take_turns).await;
}

/// Returns an error if a turn came too late.
async fn take_turns() -> Result<(), String> {
    let policy: Policy = policy("p", "1/s token-bucket(1)");
    let rule = Rule::new(policy, |_: &http::request::Parts| "all");
    let layer = RateLimitLayer::new(Limiter::in_memory(), rule).delay(Duration::from_secs(10));
    let address =
        serve(Router::new().route("/", routing::get(|| async { "hello" })).layer(layer)).await;
    let start = Instant::now();
    assert_eq!(http1(address).await.get("/").await.status, 200);
    let hung_up = tokio::spawn(async move { http1(address).await.get("/").await.status });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let waiting = tokio::spawn(async move { http1(address).await.get("/").await.status });
    tokio::time::sleep(Duration::from_millis(200)).await;
    hung_up.abort();
    match hung_up.await {
        Ok(_) => return Err("its turn came before it hung up".to_owned()),
        Err(error) => assert!(error.is_cancelled(), "{error}"),
    }
    assert_eq!(waiting.await.unwrap(), 200);
    let millis = start.elapsed().as_millis();
    assert!(millis >= 990, "{millis} ms");
    assert_eq!(http1(address).await.get("/").await.status, 200);
    assert!(start.elapsed() >= Duration::from_millis(1_990));
    // Otherwise its turn came after the other request's.
    if millis < 1_900 { Ok(()) } else { Err(format!("its turn came after {millis} ms")) }
}
