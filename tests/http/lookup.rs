//! Rows from a database: the cache, its loads, and what failures mean for a rule.
#![cfg(feature = "lookup")]

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

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode, request::Parts};
use http_body_util::Empty;
use plimsoll::{
    Limiter, Lookup, MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, Rule,
    by::{self, Or},
    client::PaceLayer,
    clock::ManualClock,
    memory::MemoryConfig,
    route,
    rule::Tiers,
    store::{Answer, Request as StoreRequest, Store},
};
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

    fn customers(&self) -> Lookup<String, Customer> {
        let database = self.clone();
        Lookup::new(api_key, move |key| database.clone().load(key))
    }
}

fn api_key(parts: &Parts) -> Option<String> {
    Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned())
}

/// Each customer has a limit, others 2 an hour for all of them.
fn rule(customers: &Lookup<String, Customer>) -> Rule {
    Rule::new(policy("api", "2/h"), customers.map(|customer| customer.id))
        .quota(customers.and_then(|customer| customer.limit))
        .resolve(customers)
}

fn limiter() -> Limiter {
    let clock = ManualClock::at(1_700_000_000_000_000);
    Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock)))
}

fn request(key: &str) -> Request<Empty<Bytes>> {
    Request::get("/").header("x-api-key", key).body(Empty::new()).unwrap()
}

type Reply = (StatusCode, Option<u64>);

/// Returns the status and the remaining units.
fn reply<B>(response: Result<Response<B>, Infallible>) -> Reply {
    let response = response.unwrap();
    let remaining = response.headers().get("x-ratelimit-remaining");
    (response.status(), remaining.map(|it| it.to_str().unwrap().parse().unwrap()))
}

/// A service that sends requests through layers.
macro_rules! service {
    ($($layer:expr),+) => {{
        let service = service_fn(|_: Request<Empty<Bytes>>| {
            ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
        });
        $(let service = $layer.layer(service);)+
        move |key: &str| {
            let (service, request) = (service.clone(), request(key));
            async move { reply(service.oneshot(request).await) }
        }
    }};
}

macro_rules! limited {
    ($rule:expr) => {
        service!(RateLimitLayer::new(limiter(), $rule))
    };
}

const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

#[tokio::test]
async fn each_customer_has_the_limit_of_its_row() {
    let database = Database::new();
    let ask = limited!(rule(&database.customers()));
    for (key, limit) in [("bob", 5), ("carol", 100), ("alice", 2)] {
        for left in (0..limit).rev() {
            assert_eq!(ask(key).await, (OK, Some(left)), "{key}");
        }
        assert_eq!(ask(key).await, (DENIED, Some(0)), "{key}");
    }
    // Those that have no row share one key.
    for (key, expected) in
        [("dave", (OK, Some(1))), ("eve", (OK, Some(0))), ("dave", (DENIED, Some(0)))]
    {
        assert_eq!(ask(key).await, expected);
    }
    assert_eq!(database.loads(), 5, "one for each key");
}

#[tokio::test]
async fn a_cached_row_costs_no_wait() {
    let database = Database::new();
    let ask = limited!(rule(&database.customers()));
    ask("carol").await;
    for left in (0..99).rev() {
        assert_eq!(now(ask("carol")), (OK, Some(left)));
    }
    assert_eq!(database.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_a_load() {
    let database = Database::gated();
    let ask = limited!(rule(&database.customers()));
    let asks = join_all((0..100).map(|_| ask("carol")));
    let asks = tokio::spawn(asks);
    while database.loads() == 0 {
        yield_now().await;
    }
    database.0.gate.add_permits(1);
    assert_eq!(asks.await.unwrap().iter().filter(|reply| reply.0 == OK).count(), 100);
    assert_eq!(database.loads(), 1);
}

#[tokio::test]
async fn rules_layers_and_handlers_share_a_lookup() {
    let database = Database::new();
    // A row is used by one request only, so that each request loads it.
    let customers = database.customers().time_to_live(Duration::ZERO).max_stale(Duration::ZERO);
    let tiers = Tiers::new(policy("free", "1/h")).tier("pro", policy("pro", "50/h"));
    let tiered =
        tiers.rule(customers.map(|customer| customer.plan), customers.map(|customer| customer.id));
    let layer = || {
        RateLimitLayer::new(limiter(), rule(&customers))
            .and(tiered.clone().resolve(&customers).resolve(&customers))
    };
    let rows = Arc::new(Mutex::new(Vec::new()));
    let (seen, lookup) = (Arc::clone(&rows), customers.clone());
    let handler = service_fn(move |request: Request<Empty<Bytes>>| {
        seen.lock().unwrap().push(lookup.row(request.extensions()).map(|row| row.id));
        ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
    });
    let service = layer().layer(layer().layer(handler));
    for (key, loads, remaining) in [("bob", 1, 4), ("dave", 2, 0)] {
        let reply = reply(service.clone().oneshot(request(key)).await);
        assert_eq!((reply, database.loads()), ((OK, Some(remaining)), loads));
    }
    assert_eq!(*rows.lock().unwrap(), [Some(2), None]);
}

/// Otherwise, the warning of a route that matches nothing would come too early.
#[tokio::test]
async fn a_rule_is_asked_once_whether_it_applies() {
    let database = Database::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let rule = rule(&database.customers()).on_failure(OnFailure::Deny).only(move |_| {
        counter.fetch_add(1, SeqCst);
        true
    });
    let ask = limited!(rule.clone());
    assert_eq!((ask("bob").await.0, asked.swap(0, SeqCst)), (OK, 1));
    assert_eq!((ask("bob").await.0, asked.swap(0, SeqCst)), (OK, 1), "cached");
    let client = service_fn(|_: Request<Empty<Bytes>>| {
        ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
    });
    PaceLayer::new(limiter(), rule).layer(client).oneshot(request("bob")).await.unwrap();
    assert_eq!(asked.swap(0, SeqCst), 1, "a call of a client");
    database.set(Mood::Down);
    assert_eq!(ask("carol").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(asked.swap(0, SeqCst), 1, "a failed load");
}

#[tokio::test]
async fn only_requests_of_the_rule_are_looked_up() {
    let database = Database::new();
    let customers = database.customers();
    let ask = limited!(rule(&customers).only(route::is("/other")));
    assert_eq!(now(ask("bob")), (OK, None));
    let exempt = RateLimitLayer::new(limiter(), rule(&customers)).exempt(|_| true);
    let ask = service!(exempt);
    assert_eq!(now(ask("bob")), (OK, None));
    // A request without a key has no row.
    let source = database.clone();
    let ask = service!(RateLimitLayer::new(
        limiter(),
        rule(&Lookup::new(|_| None, move |key: String| source.clone().load(key)))
    ));
    assert_eq!(now(ask("bob")), (OK, Some(1)));
    assert_eq!(database.loads(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_changed_row_acts_within_its_time_to_live() {
    let database = Database::new();
    let ask = limited!(rule(&database.customers().time_to_live(60 * SECOND)));
    assert_eq!(ask("bob").await, (OK, Some(4)));
    database.set_limit("bob", "10/h");
    advance(44 * SECOND).await;
    assert_eq!(now(ask("bob")), (OK, Some(3)));
    // In the last quarter of its time it is loaded again, and requests go on with the old row.
    advance(SECOND).await;
    assert_eq!(now(ask("bob")), (OK, Some(2)));
    yield_now().await;
    assert_eq!((now(ask("bob")), database.loads()), ((OK, Some(6)), 2));
    // Without a request it expires, and the next one waits for the new row.
    database.set_limit("bob", "20/h");
    advance(60 * SECOND).await;
    assert_eq!((ask("bob").await, database.loads()), ((OK, Some(15)), 3));
}

#[tokio::test(start_paused = true)]
async fn a_new_customer_is_known_after_a_while() {
    let database = Database::new();
    let ask = limited!(rule(&database.customers()));
    assert_eq!(ask("dave").await, (OK, Some(1)));
    let dave = Customer { id: 4, plan: "pro", limit: Some(Quota::per_hour(8)) };
    database.0.rows.lock().unwrap().insert("dave".to_owned(), dave);
    advance(10 * SECOND - Duration::from_millis(1)).await;
    assert_eq!(now(ask("dave")), (OK, Some(0)));
    advance(Duration::from_millis(1)).await;
    assert_eq!((ask("dave").await, database.loads()), ((OK, Some(7)), 2));
}

#[tokio::test(start_paused = true)]
async fn a_failure_means_what_the_rule_says() {
    let database = Database::new();
    let customers = database.customers();
    database.set(Mood::Down);
    let start = Instant::now();
    let with = |on_failure| rule(&customers).on_failure(on_failure);
    // As for an unknown client: under the quota of the policy, by the next extractor.
    let local =
        Rule::new(policy("api", "2/h"), customers.map(|it| it.id).or(by::header("x-api-key")))
            .quota(customers.and_then(|customer| customer.limit))
            .resolve(&customers);
    let ask = limited!(local);
    for (key, left) in [("bob", 1), ("bob", 0), ("carol", 1)] {
        assert_eq!(ask(key).await, (OK, Some(left)));
    }
    assert_eq!(ask("bob").await, (DENIED, Some(0)));
    let ask = limited!(with(OnFailure::Allow));
    for _ in 0..10 {
        assert_eq!(ask("bob").await, (OK, None));
    }
    let ask = limited!(with(OnFailure::Deny));
    assert_eq!(ask("bob").await, (UNAVAILABLE, None));
    let ask = limited!(with(OnFailure::Deny).shadow());
    assert_eq!(ask("bob").await, (OK, None));
    // The charges of other rules are not made if one rejects the request.
    let other = Rule::new(policy("other", "7/h"), by::constant("all"));
    let layer = RateLimitLayer::new(limiter(), other.clone()).and(with(OnFailure::Deny));
    let ask = service!(layer);
    assert_eq!(ask("bob").await, (UNAVAILABLE, None));
    database.set(Mood::Well);
    advance(SECOND).await;
    assert_eq!(ask("bob").await, (OK, Some(4)));
    assert_eq!(start.elapsed(), SECOND, "nothing waited");
    assert_eq!(database.loads(), 3, "bob, carol, and bob again");
}

#[tokio::test(start_paused = true)]
async fn a_load_ends_at_its_deadline() {
    let database = Database::new();
    database.set(Mood::Hangs);
    let ask = limited!(rule(&database.customers()).on_failure(OnFailure::Deny));
    for loads in 1..=3 {
        let start = Instant::now();
        let replies = join_all((0..10).map(|_| ask("bob"))).await;
        assert_eq!(replies, [(UNAVAILABLE, None); 10]);
        let waited = start.elapsed();
        assert!(waited >= DEADLINE && waited < DEADLINE + SECOND / 100, "{waited:?}");
        // For a second no request waits again.
        for _ in 0..10 {
            assert_eq!(now(ask("bob")), (UNAVAILABLE, None));
        }
        assert_eq!(database.loads(), loads);
        advance(SECOND).await;
    }
    database.set(Mood::Well);
    assert_eq!(ask("bob").await, (OK, Some(4)));
}

#[tokio::test(start_paused = true)]
async fn an_expired_row_is_used_while_the_database_is_down() {
    let database = Database::new();
    let customers = database.customers().time_to_live(60 * SECOND).max_stale(300 * SECOND);
    let ask = limited!(rule(&customers).on_failure(OnFailure::Deny));
    let loaded = Instant::now();
    assert_eq!(ask("carol").await, (OK, Some(99)));
    database.set(Mood::Hangs);
    advance(60 * SECOND).await;
    // One request waits, and the next ones do not, also while another load is running.
    assert_eq!(ask("carol").await, (OK, Some(98)));
    assert!(loaded.elapsed() >= 60 * SECOND + DEADLINE);
    let mut left = 97;
    while loaded.elapsed() < 359 * SECOND {
        assert_eq!(now(ask("carol")), (OK, Some(left)));
        left -= 1;
        advance(5 * SECOND).await;
        tokio::time::sleep(DEADLINE + SECOND).await;
    }
    advance(2 * SECOND).await;
    assert_eq!(ask("carol").await, (UNAVAILABLE, None));
    database.set(Mood::Well);
    advance(SECOND).await;
    assert_eq!(ask("carol").await, (OK, Some(left)));
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_its_own_load_only() {
    let database = Database::new();
    let ask = limited!(rule(&database.customers()).on_failure(OnFailure::Deny));
    assert_eq!(ask("bob").await, (OK, Some(4)));
    database.set(Mood::Panics);
    assert_eq!(ask("carol").await, (UNAVAILABLE, None));
    assert_eq!(ask("bob").await, (OK, Some(3)));
    database.set(Mood::Well);
    advance(SECOND).await;
    assert_eq!(ask("carol").await, (OK, Some(99)));
    // A closure that panics before it returns a future.
    let panics = Lookup::new(api_key, |_: String| -> std::future::Ready<Result<_, String>> {
        panic!("no future")
    });
    let ask = limited!(rule(&panics).on_failure(OnFailure::Deny));
    assert_eq!(ask("bob").await, (UNAVAILABLE, None));
}

#[tokio::test(start_paused = true)]
async fn a_load_goes_on_without_its_request() {
    let database = Database::gated();
    let ask = limited!(rule(&database.customers()));
    assert!(timeout(DEADLINE / 2, ask("bob")).await.is_err(), "the client disconnects");
    database.0.gate.add_permits(1);
    yield_now().await;
    yield_now().await;
    assert_eq!(now(ask("bob")), (OK, Some(4)));
    assert_eq!(database.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn loads_are_bounded_and_take_turns() {
    let database = Database::gated();
    let ask = limited!(rule(&database.customers().max_loads(4)).on_failure(OnFailure::Deny));
    let invented: Vec<_> = (0..50).map(|number| format!("invented {number}")).collect();
    let flood = tokio::spawn(join_all(invented.iter().map(|key| ask(key))));
    let (bob, gate) = (tokio::spawn(ask("bob")), Arc::clone(&database.0));
    for _ in 0..60 {
        yield_now().await;
        gate.gate.add_permits(1);
    }
    assert_eq!(bob.await.unwrap(), (OK, Some(4)));
    flood.await.unwrap();
    assert_eq!(database.loads(), 51);
    assert_eq!(database.0.most_running.load(SeqCst), 4);
}

/// Without an address, all are one client, whose newest load is the next.
#[tokio::test(start_paused = true)]
async fn of_too_many_keys_at_once_the_oldest_fail() {
    let database = Database::gated();
    let ask = limited!(rule(&database.customers()).on_failure(OnFailure::Deny));
    let mut flood = Vec::new();
    for number in 0..1_024 + 32 {
        flood.push(tokio::spawn(ask(&format!("{number}"))));
        yield_now().await;
    }
    assert!(!flood.iter().any(|request| request.is_finished()));
    let bob = tokio::spawn(ask("bob"));
    yield_now().await;
    yield_now().await;
    let failed: Vec<_> = (0..flood.len()).filter(|number| flood[*number].is_finished()).collect();
    assert_eq!(failed, [32], "the oldest one that waits");
    database.0.gate.add_permits(33);
    assert_eq!(bob.await.unwrap(), (OK, Some(4)));
    for request in flood.drain(64..) {
        request.abort();
    }
    for (number, request) in flood.into_iter().enumerate() {
        assert_eq!(request.await.unwrap().0 == UNAVAILABLE, number >= 32, "{number}");
    }
}

#[tokio::test]
async fn invented_keys_evict_no_customer() {
    let database = Database::new();
    let ask = limited!(rule(&database.customers().max_entries(200)));
    ask("bob").await;
    for number in 0..5_000 {
        ask(&format!("invented {number}")).await;
    }
    let loads = database.loads();
    assert_eq!(now(ask("bob")), (OK, Some(3)));
    assert_eq!(database.loads(), loads);
}

#[tokio::test]
async fn a_forgotten_row_is_loaded_again() {
    let database = Database::new();
    let customers = database.customers();
    let ask = limited!(rule(&customers));
    assert_eq!(ask("bob").await, (OK, Some(4)));
    database.set_limit("bob", "10/h");
    customers.forget(&"bob".to_owned());
    assert_eq!(ask("bob").await, (OK, Some(8)));
}

/// The load may have read the row before the change.
#[tokio::test(start_paused = true)]
async fn a_load_that_runs_when_its_key_is_forgotten_is_not_stored() {
    let database = Database::gated();
    let customers = database.customers();
    let ask = limited!(rule(&customers));
    let first = tokio::spawn(ask("bob"));
    while database.loads() == 0 {
        yield_now().await;
    }
    customers.forget(&"bob".to_owned());
    database.0.gate.add_permits(2);
    assert_eq!(first.await.unwrap(), (OK, Some(4)));
    assert_eq!((ask("bob").await, database.loads()), ((OK, Some(3)), 2));
}

#[test]
fn a_runtime_that_ends_takes_its_loads_with_it() {
    let database = Database::gated();
    let ask = limited!(rule(&database.customers()).on_failure(OnFailure::Deny));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    first.block_on(async {
        let _ = timeout(Duration::from_millis(10), ask("bob")).await;
    });
    drop(first);
    let second = runtime();
    assert_eq!(second.block_on(ask("bob")), (UNAVAILABLE, None), "the load has failed just now");
    database.0.gate.add_permits(10);
    assert_eq!(second.block_on(ask("carol")), (OK, Some(99)));
    // Without a runtime with timers nothing can be loaded.
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(bare.block_on(ask("alice")), (UNAVAILABLE, None));
    assert_eq!(now(ask("alice")), (UNAVAILABLE, None));
}

/// Each load that waits is started, and dropped at once, by the one before.
#[test]
fn a_runtime_that_ends_ends_the_loads_that_wait() {
    let database = Database::gated();
    let customers = database.customers().max_loads(1).deadline(60 * SECOND);
    let ask = limited!(rule(&customers).on_failure(OnFailure::Deny));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let waiting: Vec<_> = first.block_on(async {
        let mut waiting: Vec<_> =
            (0..1_000).map(|number| Box::pin(ask(&format!("{number}")))).collect();
        for request in &mut waiting {
            assert!(timeout(Duration::ZERO, request).await.is_err());
        }
        waiting
    });
    // A small stack, which calls inside of calls would overflow.
    let ended = std::thread::Builder::new().stack_size(256 << 10).spawn(move || drop(first));
    ended.unwrap().join().unwrap();
    database.0.gate.add_permits(1);
    assert_eq!(runtime().block_on(ask("carol")), (OK, Some(99)));
    drop(waiting);
}

/// A store whose answers are pending at first.
#[derive(Debug)]
struct PendingStore(MemoryStore);

impl Store for PendingStore {
    fn call(&self, request: StoreRequest<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let reply = self.0.call(request, deadline).now().unwrap();
        Answer::pending(async move {
            yield_now().await;
            reply
        })
    }
}

#[tokio::test]
async fn a_request_waits_for_its_row_and_then_for_the_store() {
    let database = Database::new();
    let limiter = Limiter::new(PendingStore(MemoryStore::new(MemoryConfig::default())));
    let ask = service!(RateLimitLayer::new(limiter, rule(&database.customers())));
    for left in (0..5).rev() {
        assert_eq!(ask("bob").await, (OK, Some(left)));
    }
    assert_eq!(ask("bob").await, (DENIED, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_client_are_paced_by_rows() {
    let database = Database::new();
    let client = service_fn(|_: Request<Empty<Bytes>>| {
        ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
    });
    let rule = rule(&database.customers()).on_failure(OnFailure::Deny);
    let client = PaceLayer::new(limiter(), rule).layer(client);
    for _ in 0..5 {
        client.clone().oneshot(request("bob")).await.unwrap();
    }
    assert!(client.clone().oneshot(request("bob")).await.unwrap_err().is_denied());
    database.set(Mood::Down);
    let error = client.clone().oneshot(request("carol")).await.unwrap_err();
    assert!(matches!(error, plimsoll::client::PaceError::Limiter(error) if error.is_unavailable()));
}

#[test]
#[should_panic(expected = "allowed is 1 to 1024")]
fn settings_have_bounds() {
    let _ = Database::new().customers().max_loads(0);
}

/// Settings without an end are no panic on the path of a request.
#[tokio::test]
async fn the_longest_times_are_allowed() {
    let database = Database::gated();
    let customers = database.customers().deadline(Duration::MAX).max_stale(Duration::MAX);
    let customers = customers.time_to_live(Duration::MAX).unknown_for(Duration::MAX);
    let ask = limited!(rule(&customers).on_failure(OnFailure::Deny));
    let asked = join_all(["bob", "bob", "nobody"].map(&ask));
    let (replies, ()) = tokio::join!(asked, async {
        yield_now().await;
        database.0.gate.add_permits(2);
    });
    assert!(replies.iter().all(|(status, _)| *status == OK), "{replies:?}");
    assert_eq!(now(ask("nobody")).0, OK);
    assert_eq!(database.loads(), 2);
}

/// Unknown customers and others share only the name of the policy.
#[tokio::test]
async fn a_customer_without_a_limit_has_that_of_the_policy() {
    let database = Database::new();
    let api = Policy::new("api", Quota::per_hour(3)).unwrap();
    let customers = database.customers();
    let rule = Rule::new(api.clone(), customers.map(|customer| customer.id))
        .quota(customers.and_then(|customer| customer.limit))
        .resolve(&customers);
    let ask = limited!(rule);
    assert_eq!((ask("alice").await, ask("bob").await), ((OK, Some(2)), (OK, Some(4))));
    api.set_quota(Quota::per_hour(30));
    assert_eq!((ask("alice").await, ask("bob").await), ((OK, Some(28)), (OK, Some(3))));
}

/// A closure of a lookup in a rule that does not resolve it never finds a row.
#[cfg(feature = "tracing")]
#[tokio::test]
async fn a_rule_that_does_not_resolve_its_lookup_is_reported() {
    if !plimsoll_testing::alone("lookup::a_rule_that_does_not_resolve_its_lookup_is_reported") {
        return;
    }
    let log = plimsoll_testing::log::Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let customers = Database::new().customers();
    let ask = limited!(Rule::new(policy("api", "9/h"), customers.map(|customer| customer.id)));
    assert_eq!((ask("bob").await, ask("carol").await), ((OK, Some(8)), (OK, Some(7))));
    let events = log.take();
    let reported = events.iter().filter(|event| event.contains(".resolve(&lookup)")).count();
    assert_eq!(reported, 1, "{events:#?}");
}

#[cfg(feature = "metrics")]
#[test]
fn lookups_and_loads_are_counted() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    metrics::with_local_recorder(&recorder, || {
        runtime.unwrap().block_on(async {
            let database = Database::new();
            let ask = limited!(rule(&database.customers()));
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
    let mut counted = HashMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let label = key.key().labels().next().map_or("", |label| label.value()).to_owned();
        match value {
            DebugValue::Counter(count) => {
                counted.insert((key.key().name().to_owned(), label), count);
            }
            DebugValue::Histogram(times) if key.key().name().contains("lookup") => {
                assert_eq!(times.len(), 4, "bob, dave, carol, and bob again");
            }
            _ => {}
        }
    }
    let count = |name: &str, label: &str| counted.get(&(name.to_owned(), label.to_owned()));
    for (label, expected) in
        [("loaded", 1), ("cached", 2), ("unknown", 2), ("failed", 1), ("stale", 2)]
    {
        assert_eq!(count("plimsoll_lookups_total", label), Some(&expected), "{label}");
    }
    assert_eq!(count("plimsoll_lookup_failures_total", "error"), Some(&2));
}
