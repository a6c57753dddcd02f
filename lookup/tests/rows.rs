//! Rows from a database: the cache, its loads, and failures.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::{pending, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode, request::Parts};
use plimsoll::{
    Limiter, MemoryStore, Quota, RateLimitLayer, Rule, clock::ManualClock, memory::MemoryConfig,
    rule::Tiers,
};
use plimsoll_lookup::{LookupFailed, LookupLayer, row};
use plimsoll_testing::{now, policy};
use tokio::{
    sync::Semaphore,
    task::yield_now,
    time::{Instant, advance, timeout},
};
use tower::{Layer, ServiceExt, service_fn};

const DEADLINE: Duration = Duration::from_millis(200);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq)]
struct Customer {
    id: u64,
    plan: &'static str,
    limit: Option<Quota>,
}

/// The behaviour of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mood {
    Well,
    Down,
    Hangs,
    Panics,
}

/// A table of customers, and how often it was asked.
#[derive(Debug, Clone)]
struct Database(Arc<DatabaseState>);

#[derive(Debug)]
struct DatabaseState {
    rows: Mutex<HashMap<String, Customer>>,
    mood: Mutex<Mood>,
    loads: AtomicUsize,
    running: AtomicUsize,
    most_running: AtomicUsize,
    /// Each load takes one permit.
    gate: Semaphore,
}

impl Database {
    /// A database that answers at once.
    fn new() -> Self {
        let database = Self::gated();
        database.0.gate.add_permits(1_000_000);
        database
    }

    /// A database that answers when permits are added.
    fn gated() -> Self {
        let customer = |id, plan, limit: Option<&str>| Customer {
            id,
            plan,
            limit: limit.map(|limit| limit.parse().unwrap()),
        };
        let rows = HashMap::from([
            ("alice".to_owned(), customer(1, "free", None)),
            ("bob".to_owned(), customer(2, "pro", Some("5/h"))),
            ("carol".to_owned(), customer(3, "pro", Some("100/h"))),
        ]);
        Self(Arc::new(DatabaseState {
            rows: Mutex::new(rows),
            mood: Mutex::new(Mood::Well),
            loads: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
            gate: Semaphore::new(0),
        }))
    }

    fn set(&self, mood: Mood) {
        *self.0.mood.lock().unwrap() = mood;
    }

    fn set_limit(&self, key: &str, limit: &str) {
        self.0.rows.lock().unwrap().get_mut(key).unwrap().limit = Some(limit.parse().unwrap());
    }

    fn loads(&self) -> usize {
        self.0.loads.load(SeqCst)
    }

    async fn load(self, key: String) -> Result<Option<Customer>, String> {
        self.0.loads.fetch_add(1, SeqCst);
        let running = self.0.running.fetch_add(1, SeqCst) + 1;
        self.0.most_running.fetch_max(running, SeqCst);
        self.0.gate.acquire().await.unwrap().forget();
        self.0.running.fetch_sub(1, SeqCst);
        let mood = *self.0.mood.lock().unwrap();
        match mood {
            Mood::Well => Ok(self.0.rows.lock().unwrap().get(&key).cloned()),
            Mood::Down => Err("no connection".to_owned()),
            Mood::Hangs => pending().await,
            Mood::Panics => panic!("a load panics"),
        }
    }

    fn customers(&self) -> LookupLayer<Customer> {
        let database = self.clone();
        LookupLayer::new(api_key, move |key| database.clone().load(key))
    }
}

fn api_key(parts: &Parts) -> Option<String> {
    Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned())
}

fn id(parts: &Parts) -> Option<u64> {
    Some(row::<Customer>(&parts.extensions)?.id)
}

/// Each customer has a limit, others 2 an hour for all of them.
fn rule() -> Rule {
    let limit = |parts: &Parts| row::<Customer>(&parts.extensions)?.limit;
    Rule::new(policy("api", "2/h"), id).quota(limit)
}

fn limiter() -> Limiter {
    let clock = ManualClock::at(1_700_000_000_000_000);
    Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock)))
}

fn request(key: &str) -> Request<Body> {
    Request::get("/").header("x-api-key", key).body(Body::empty()).unwrap()
}

/// A service that sends requests through a lookup and a rate limit. The reply has the remaining units.
macro_rules! limited {
    ($customers:expr) => {
        limited!($customers, rule())
    };
    ($customers:expr, $rule:expr) => {{
        let service =
            service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
        let limit = RateLimitLayer::new(limiter(), $rule);
        let service = $customers.layer(limit.layer(service));
        move |key: &str| {
            let (service, request) = (service.clone(), request(key));
            async move {
                let response = service.oneshot(request).await.unwrap();
                let remaining = response.headers().get("x-ratelimit-remaining");
                let remaining = remaining.map(|it| it.to_str().unwrap().parse::<u64>().unwrap());
                (response.status(), remaining)
            }
        }
    }};
}

const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

#[tokio::test]
async fn each_customer_has_the_limit_of_its_row() {
    let database = Database::new();
    let ask = limited!(database.customers());
    for (key, limit) in [("bob", 5), ("carol", 100), ("alice", 2)] {
        for left in (0..limit).rev() {
            assert_eq!(ask(key).await, (OK, Some(left)), "{key}");
        }
        assert_eq!(ask(key).await, (DENIED, Some(0)), "{key}");
    }
    assert_eq!(database.loads(), 3, "one for each key");
    // Those without a row share one key.
    assert_eq!((ask("dave").await, ask("eve").await), ((OK, Some(1)), (OK, Some(0))));
    assert_eq!(now(ask("dave")), (DENIED, Some(0)));
    assert_eq!(database.loads(), 5);
}

#[tokio::test]
async fn a_cached_row_costs_no_wait() {
    let database = Database::new();
    let ask = limited!(database.customers());
    ask("carol").await;
    for left in (0..99).rev() {
        assert_eq!(now(ask("carol")), (OK, Some(left)));
    }
    assert_eq!(database.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_a_load() {
    let database = Database::gated();
    let ask = limited!(database.customers());
    for key in ["carol", "nobody"] {
        let asks = tokio::spawn(join_all((0..100).map(|_| ask(key))));
        let before = database.loads();
        while database.loads() == before {
            yield_now().await;
        }
        database.0.gate.add_permits(1);
        assert_eq!(asks.await.unwrap().iter().filter(|reply| reply.0 != UNAVAILABLE).count(), 100);
        assert_eq!(database.loads(), before + 1);
    }
}

/// If the client of the request that loads disconnects, one of the others loads.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_leaves_its_load_to_the_next() {
    let database = Database::gated();
    let ask = limited!(database.customers());
    let mut first = Box::pin(ask("bob"));
    assert!(timeout(SECOND / 100, &mut first).await.is_err());
    let second = tokio::spawn(ask("bob"));
    yield_now().await;
    assert_eq!(database.loads(), 1);
    drop(first);
    yield_now().await;
    assert_eq!(database.loads(), 2);
    database.0.gate.add_permits(1);
    assert_eq!(second.await.unwrap(), (OK, Some(4)));
}

#[tokio::test]
async fn a_tier_and_a_handler_read_the_row() {
    let database = Database::new();
    let tiers = Tiers::new(policy("free", "1/h")).tier("pro", policy("pro", "50/h"));
    let plan = |parts: &Parts| Some(row::<Customer>(&parts.extensions)?.plan);
    let tiered = RateLimitLayer::new(limiter(), tiers.rule(plan, id));
    let handler = service_fn(|request: Request<Body>| {
        let name = row::<Customer>(request.extensions()).map_or("none", |it| it.plan);
        ready(Ok::<_, Infallible>(Response::new(Body::from(name))))
    });
    let service = database.customers().layer(tiered.layer(handler));
    for (key, plan, remaining) in [("bob", "pro", "49"), ("alice", "free", "0")] {
        let response = service.clone().oneshot(request(key)).await.unwrap();
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
        let body = axum::body::to_bytes(Body::new(response.into_body()), 100).await.unwrap();
        assert_eq!(body, plan);
    }
}

/// One request loads an old row, and the others go on with it meanwhile.
#[tokio::test(start_paused = true)]
async fn a_changed_row_acts_after_its_time_to_live() {
    let database = Database::new();
    let ask = limited!(database.customers().time_to_live(60 * SECOND));
    assert_eq!(ask("bob").await, (OK, Some(4)));
    database.set_limit("bob", "10/h");
    advance(60 * SECOND - SECOND / 1_000).await;
    assert_eq!(now(ask("bob")), (OK, Some(3)));
    advance(SECOND / 1_000).await;
    assert_eq!((ask("bob").await, database.loads()), ((OK, Some(7)), 2));
    advance(60 * SECOND).await;
    database.set(Mood::Hangs);
    let loading = tokio::spawn(ask("bob"));
    yield_now().await;
    assert_eq!(now(ask("bob")), (OK, Some(6)));
    assert_eq!((loading.await.unwrap(), database.loads()), ((OK, Some(5)), 3));
}

#[tokio::test(start_paused = true)]
async fn a_new_customer_is_known_after_a_while() {
    let database = Database::new();
    let ask = limited!(database.customers());
    assert_eq!(ask("dave").await, (OK, Some(1)));
    let dave = Customer { id: 4, plan: "pro", limit: Some(Quota::per_hour(8)) };
    database.0.rows.lock().unwrap().insert("dave".to_owned(), dave);
    advance(10 * SECOND - Duration::from_millis(1)).await;
    assert_eq!(now(ask("dave")), (OK, Some(0)));
    advance(Duration::from_millis(1)).await;
    assert_eq!((ask("dave").await, database.loads()), ((OK, Some(7)), 2));
    // A customer that has left is unknown when its row is loaded again.
    database.0.rows.lock().unwrap().remove("dave");
    advance(60 * SECOND).await;
    assert_eq!((ask("dave").await, now(ask("dave"))), ((DENIED, Some(0)), (DENIED, Some(0))));
    assert_eq!(database.loads(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failure_goes_on_without_a_row_or_is_denied() {
    for mood in [Mood::Down, Mood::Hangs] {
        let database = Database::new();
        database.set(mood);
        let start = Instant::now();
        assert_eq!(limited!(database.customers())("bob").await, (OK, Some(1)));
        let ask = limited!(database.customers().deny_on_failure());
        assert_eq!(ask("bob").await, (UNAVAILABLE, None));
        let elapsed = start.elapsed();
        let expected = if mood == Mood::Hangs { 2 * DEADLINE } else { Duration::ZERO };
        assert!(elapsed.abs_diff(expected) < SECOND / 100, "{elapsed:?}");
        database.set(Mood::Well);
        assert_eq!(ask("bob").await, (OK, Some(4)), "nothing is left of the failure");
    }
}

#[tokio::test]
async fn a_failure_is_seen_by_rules_and_is_a_status_of_grpc() {
    let database = Database::new();
    database.set(Mood::Down);
    let failed = |parts: &Parts| parts.extensions.get::<LookupFailed>().map(|_| 1_u64);
    let ask = limited!(database.customers(), Rule::new(policy("failed", "9/h"), failed));
    assert_eq!(ask("bob").await, (OK, Some(8)));
    let inner =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let service = database.customers().deny_on_failure().layer(inner);
    let mut call = request("bob");
    call.headers_mut().insert("content-type", "application/grpc+proto".parse().unwrap());
    let response = service.oneshot(call).await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["grpc-status"]),
        (OK, &"14".parse().unwrap())
    );
}

#[tokio::test(start_paused = true)]
async fn a_load_ends_at_its_deadline() {
    let database = Database::gated();
    let ask = limited!(database.customers().max_loads(1).deny_on_failure());
    let start = Instant::now();
    // The second one waits for a place.
    let replies = join_all([ask("bob"), ask("carol")]).await;
    assert_eq!(replies, [(UNAVAILABLE, None); 2]);
    assert!(start.elapsed() - DEADLINE < SECOND / 100, "{:?}", start.elapsed());
    assert_eq!(database.loads(), 1);
    database.0.gate.add_permits(2);
    assert_eq!(ask("bob").await, (OK, Some(4)));
}

#[tokio::test(start_paused = true)]
async fn an_old_row_is_used_while_the_database_is_down() {
    let database = Database::new();
    let ask = limited!(database.customers().deny_on_failure());
    assert_eq!(ask("carol").await, (OK, Some(99)));
    database.set(Mood::Down);
    advance(60 * SECOND).await;
    assert_eq!((ask("carol").await, now(ask("carol"))), ((OK, Some(98)), (OK, Some(97))));
    assert_eq!(database.loads(), 2, "it is tried again after a second");
    advance(SECOND).await;
    assert_eq!((ask("carol").await, database.loads()), ((OK, Some(96)), 3));
    advance(300 * SECOND).await;
    assert_eq!(ask("carol").await, (UNAVAILABLE, None));
    database.set(Mood::Well);
    assert_eq!(ask("carol").await, (OK, Some(95)));
}

#[tokio::test]
async fn a_panic_ends_its_own_request_only() {
    let database = Database::new();
    let ask = limited!(database.customers());
    database.set(Mood::Panics);
    assert!(tokio::spawn(ask("bob")).await.unwrap_err().is_panic());
    database.set(Mood::Well);
    assert_eq!(ask("bob").await, (OK, Some(4)));
}

#[tokio::test(start_paused = true)]
async fn loads_at_once_are_bounded() {
    let database = Database::gated();
    let ask = limited!(database.customers().max_loads(3));
    let asks: Vec<_> =
        (0..20).map(|number| tokio::spawn(ask(&format!("invented {number}")))).collect();
    for _ in 0..20 {
        advance(SECOND / 1_000).await;
        database.0.gate.add_permits(1);
        yield_now().await;
    }
    assert_eq!(join_all(asks).await.len(), 20);
    assert_eq!(database.0.most_running.load(SeqCst), 3);
}

#[tokio::test]
async fn invented_keys_evict_no_customer() {
    let database = Database::new();
    let ask = limited!(database.customers().max_entries(10));
    assert_eq!(ask("carol").await, (OK, Some(99)));
    for number in 0..10_000 {
        ask(&format!("invented {number}")).await;
    }
    assert_eq!(now(ask("carol")), (OK, Some(98)));
}

#[tokio::test]
async fn a_forgotten_row_is_loaded_again() {
    let database = Database::new();
    let customers = database.customers();
    let ask = limited!(customers.clone());
    ask("bob").await;
    ask("nobody").await;
    database.set_limit("bob", "10/h");
    customers.forget("bob");
    customers.forget("nobody");
    assert_eq!((ask("bob").await, ask("nobody").await), ((OK, Some(8)), (OK, Some(0))));
    assert_eq!(database.loads(), 4);
}

/// A request without a key, or with one that is too long, has no row.
#[tokio::test]
async fn long_keys_have_no_row_and_are_not_loaded() {
    let database = Database::new();
    let ask = limited!(database.customers());
    for (length, left) in [(257, 1), (60_000, 0)] {
        assert_eq!(now(ask(&"k".repeat(length))), (OK, Some(left)));
    }
    assert_eq!(database.loads(), 0);
    assert_eq!((ask(&"k".repeat(256)).await, database.loads()), ((DENIED, Some(0)), 1));
    let source = database.clone();
    let ask = limited!(LookupLayer::new(|_| None, move |key| source.clone().load(key)));
    assert_eq!((now(ask("bob")), database.loads()), ((OK, Some(1)), 1));
}

#[test]
#[should_panic(expected = "allowed is 1 to 1024")]
fn settings_have_bounds() {
    let _ = Database::new().customers().max_loads(0);
}

/// Settings without an end are no panic on the path of a request.
#[tokio::test]
async fn the_longest_times_are_allowed() {
    let database = Database::new();
    let customers = database.customers().deadline(Duration::MAX).max_stale(Duration::MAX);
    let ask = limited!(customers.time_to_live(Duration::MAX).unknown_for(Duration::MAX));
    for key in ["bob", "nobody", "bob", "nobody"] {
        assert_eq!(ask(key).await.0, OK);
    }
    assert_eq!(database.loads(), 2);
    let ask = limited!(database.customers().time_to_live(Duration::ZERO).max_stale(Duration::MAX));
    assert_eq!((ask("bob").await.0, ask("bob").await.0), (OK, OK));
}

#[cfg(feature = "metrics")]
#[test]
fn lookups_are_counted() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    metrics::with_local_recorder(&recorder, || {
        runtime.unwrap().block_on(async {
            let database = Database::new();
            let ask = limited!(database.customers());
            for key in ["bob", "bob", "bob", "dave", "dave"] {
                ask(key).await;
            }
            database.set(Mood::Down);
            ask("carol").await;
            advance(60 * SECOND).await;
            ask("bob").await;
            ask("bob").await;
        });
    });
    let counted: HashMap<String, u64> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .filter(|(key, ..)| key.key().name() == "plimsoll_lookups_total")
        .map(|(key, _, _, value)| {
            let DebugValue::Counter(count) = value else { panic!("a counter") };
            (key.key().labels().next().unwrap().value().to_owned(), count)
        })
        .collect();
    for (label, expected) in
        [("loaded", 1), ("cached", 2), ("unknown", 2), ("failed", 1), ("stale", 2)]
    {
        assert_eq!(counted.get(label), Some(&expected), "{label}");
    }
}

/// The text of the error is in the event, and no key.
#[tokio::test(start_paused = true)]
async fn failures_are_one_event_a_second() {
    if !plimsoll_testing::alone("failures_are_one_event_a_second") {
        return;
    }
    let log = plimsoll_testing::log::Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let database = Database::new();
    database.set(Mood::Down);
    let ask = limited!(database.customers());
    for second in 0..3 {
        for key in ["very-secret", "bob"] {
            ask(key).await;
        }
        let events = log.take();
        let reported: Vec<_> =
            events.iter().filter(|it| it.contains("a lookup has failed")).collect();
        assert_eq!(reported.len(), 1, "{second}: {events:#?}");
        assert!(reported[0].contains("no connection") && !reported[0].contains("secret"));
        advance(SECOND).await;
    }
}
