//! Clients that invent keys, and the customers whose rows are loaded meanwhile. tokio's paused clock moves
//! by itself, so a flood of some seconds takes no longer than its work.
#![cfg(all(feature = "axum", feature = "lookup"))]

use std::{
    convert::Infallible,
    future::ready,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Waker},
    time::Duration,
};

use axum::extract::ConnectInfo;
use http::{Request, Response, StatusCode, request::Parts};
use plimsoll::{
    Limiter, Lookup, MemoryStore, OnFailure, Policy, RateLimitLayer, Rule,
    by::{self, ClientIp, Or},
    clock::TokioClock,
    memory::MemoryConfig,
};
use plimsoll_testing::now;
use tokio::{
    runtime::Builder,
    sync::Semaphore,
    task::{JoinSet, yield_now},
    time::{Instant, advance, sleep, timeout},
};
use tower::{Layer, ServiceExt, service_fn};

const MS: Duration = Duration::from_millis(1);
const LOAD_TIME: Duration = Duration::from_millis(20);
/// 32 loads of 20 ms at once.
const CAPACITY: usize = 1_600;
const OK: StatusCode = StatusCode::OK;
const UNAUTHORIZED: StatusCode = StatusCode::UNAUTHORIZED;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// A database that takes a time, or waits for permits, and counts its loads.
struct Database {
    time: Duration,
    gate: Semaphore,
    started: AtomicUsize,
    ended: AtomicUsize,
}

impl Database {
    fn new(time: Duration) -> Arc<Self> {
        let gate = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self { time, gate, started: AtomicUsize::new(0), ended: AtomicUsize::new(0) })
    }

    fn gated() -> Arc<Self> {
        let database = Self::new(Duration::ZERO);
        Arc::new(Self { gate: Semaphore::new(0), ..Arc::into_inner(database).unwrap() })
    }

    fn customers(self: &Arc<Self>) -> Lookup<String, u64> {
        let database = Arc::clone(self);
        let key = |parts: &Parts| Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned());
        Lookup::new(key, move |key: String| {
            let database = Arc::clone(&database);
            async move {
                database.started.fetch_add(1, SeqCst);
                database.gate.acquire().await.unwrap().forget();
                sleep(database.time).await;
                database.ended.fetch_add(1, SeqCst);
                Ok::<_, Infallible>(key.starts_with("customer").then_some(1))
            }
        })
    }

    fn started(&self) -> usize {
        self.started.load(SeqCst)
    }
}

/// Returns a function that sends a request with a key from an address, and returns the status: 503 if the
/// row cannot be loaded, and 401 if there is none. A layer can stand in front of the one with the lookup.
macro_rules! service {
    ($customers:expr) => {
        service!($customers, |service| service)
    };
    ($customers:expr, $front:expr) => {{
        let customers = $customers;
        let policy = Policy::new("api", "1000000/h token-bucket(1000000)");
        let rule = Rule::new(policy.unwrap(), customers.map(|id| *id).or(by::constant("others")))
            .on_failure(OnFailure::Deny)
            .resolve(&customers);
        let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
        let service = $front(layer.layer(service_fn(move |request: Request<String>| {
            let known = customers.row(request.extensions()).is_some();
            let mut response = Response::new(String::new());
            *response.status_mut() = if known { OK } else { UNAUTHORIZED };
            ready(Ok::<_, Infallible>(response))
        })));
        move |key: &str, address: IpAddr| {
            let request = Request::get("/").header("x-api-key", key);
            let request = request.header("x-forwarded-for", address.to_string());
            let mut request = request.body(String::new()).unwrap();
            request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address, 443)));
            let service = service.clone();
            async move { service.oneshot(request).await.unwrap().status() }
        }
    }};
}

/// Returns the address with this number. Each is in a /64 of its own.
fn address(network: u16, number: usize) -> IpAddr {
    let [high, low] = [number >> 16, number & 0xffff].map(|it| it as u16);
    Ipv6Addr::new(0x2001, 0xdb8, network, low, high, 0, 0, 1).into()
}

/// The share of the new customers whose rows were loaded while others invented keys, and the share of the
/// loads that came to their end.
#[derive(Debug)]
struct Shares {
    served: f64,
    ended: f64,
}

/// A flood of invented keys.
#[derive(Clone, Copy)]
struct Flood {
    addresses: usize,
    /// Keys a second.
    rate: usize,
    /// The number of the next customers whose rows the flood asks for each millisecond, before they come.
    named: usize,
    /// The millisecond in which the first customer comes. The flood lasts for 1.5 s longer.
    warm_up: usize,
}

async fn flood(addresses: usize, rate: usize, named: usize) -> Shares {
    let database = Database::new(LOAD_TIME);
    let ask = service!(database.customers());
    Flood { addresses, rate, named, warm_up: 500 }.run(&database, ask).await
}

impl Flood {
    /// Invents keys, while a new customer comes every 7 ms after the warm-up, from an address of its own.
    async fn run<F>(self, database: &Database, ask: impl Fn(&str, IpAddr) -> F) -> Shares
    where
        F: Future<Output = StatusCode> + Send + 'static,
    {
        let Self { addresses, rate, named, warm_up } = self;
        let (mut invented, mut customers) = (JoinSet::new(), JoinSet::new());
        for millisecond in 0..warm_up + 1_500 {
            let numbers = rate * millisecond / 1_000..rate * (millisecond + 1) / 1_000;
            // A customer comes at another place among the others each time.
            let place = numbers.start + millisecond / 7 % numbers.len();
            for number in numbers {
                if millisecond >= warm_up && millisecond % 7 == 0 && number == place {
                    let client = address(1, millisecond);
                    customers.spawn(ask(&format!("customer {millisecond}"), client));
                }
                let client = address(0, number % addresses);
                invented.spawn(ask(&format!("invented {number}"), client));
            }
            let next = millisecond.max(warm_up - 1) / 7 + 1;
            for number in next..next + named {
                let client = address(0, millisecond % addresses);
                invented.spawn(ask(&format!("customer {}", 7 * number), client));
            }
            sleep(MS).await;
        }
        let total = customers.len() as f64;
        let customers = customers.join_all().await;
        invented.join_all().await;
        let served = customers.iter().filter(|status| **status == OK).count() as f64 / total;
        let ended = database.ended.load(SeqCst) as f64 / database.started() as f64;
        Shares { served, ended }
    }
}

#[tokio::test(start_paused = true)]
async fn invented_keys_from_few_addresses_delay_no_customer() {
    for addresses in [1, 100] {
        for times in [1, 2, 5] {
            let shares = flood(addresses, times * CAPACITY, 0).await;
            assert!(shares.served >= 0.95, "{addresses} addresses, {times} x: {shares:?}");
            assert!(shares.ended >= 0.99, "{addresses} addresses, {times} x: {shares:?}");
        }
    }
}

/// The load of a customer's row that a flood has asked for first has the turns of the customer too.
#[tokio::test(start_paused = true)]
async fn a_flood_that_names_the_next_customers_delays_none_of_them() {
    for addresses in [1, 50] {
        let shares = flood(addresses, 5 * CAPACITY, 3).await;
        assert!(shares.served >= 0.95, "{addresses} addresses: {shares:?}");
        assert!(shares.ended >= 0.99, "{addresses} addresses: {shares:?}");
    }
}

/// If each request comes from another address, customers are served as others are.
#[tokio::test(start_paused = true)]
async fn invented_keys_from_many_addresses_leave_customers_their_share() {
    for times in [1, 2, 5] {
        let shares = flood(10_000, times * CAPACITY, 0).await;
        // A timer of tokio is up to 1 ms late, so a load takes 21 ms.
        let share = 20.0 / 21.0 / times as f64;
        assert!(shares.served >= 0.95 * share, "{times} x: {shares:?}");
        assert!(shares.ended >= 0.99, "{times} x: {shares:?}");
    }
}

/// The turn of a customer comes after one load of each address: in time only if the deadline is long enough.
#[tokio::test(start_paused = true)]
async fn a_longer_deadline_serves_customers_among_more_addresses() {
    let flood = Flood { addresses: 600, rate: 5 * CAPACITY, named: 0, warm_up: 1_000 };
    for (deadline, served) in [(200 * MS, 0.0..0.3), (1_000 * MS, 1.0..1.1)] {
        let database = Database::new(LOAD_TIME);
        let shares = flood.run(&database, service!(database.customers().deadline(deadline))).await;
        assert!(served.contains(&shares.served), "{deadline:?}: {shares:?}");
    }
}

/// The stack of the guide's page on lookups: a limit by address in front, for requests without a row.
#[tokio::test(start_paused = true)]
async fn a_limit_by_address_in_front_serves_all_customers_in_a_flood() {
    // After a quarter of a second, the flood has spent the burst of each address. Its last loads end later.
    let flood = Flood { addresses: 600, rate: 50_000, named: 0, warm_up: 500 };
    let database = Database::new(LOAD_TIME);
    let unknown = Policy::new("unknown-keys", "30/min token-bucket(20)").unwrap();
    let rule = Rule::new(unknown, by::peer_ip())
        .refund_if(|response| !matches!(response.status, UNAUTHORIZED | UNAVAILABLE));
    let store = MemoryStore::new(MemoryConfig::default().clock(TokioClock::new()));
    let front = RateLimitLayer::new(Limiter::new(store), rule);
    let ask = service!(database.customers(), |service| front.layer(service));
    let shares = flood.run(&database, ask).await;
    assert_eq!(shares.served, 1.0, "{shares:?}");
    // Without the layer in front, the database works at its capacity.
    assert!(database.started() < CAPACITY, "{} loads", database.started());
}

#[tokio::test(start_paused = true)]
async fn a_load_that_cannot_end_in_time_is_refused_at_once() {
    let database = Database::new(60 * MS);
    let ask = service!(database.customers().max_loads(1));
    assert_eq!(ask("customer 0", address(0, 0)).await, OK);
    let first = tokio::spawn(ask("customer 1", address(0, 1)));
    yield_now().await;
    // It ends after 122 ms, and another one would end after 183 ms, near the deadline of 200 ms.
    let second = tokio::spawn(ask("customer 2", address(0, 2)));
    yield_now().await;
    assert_eq!(now(ask("customer 3", address(0, 3))), UNAVAILABLE);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (OK, OK));
    // A refusal is no failure of the row.
    assert_eq!(ask("customer 3", address(0, 3)).await, OK);
    assert_eq!(database.started(), 4);
}

/// The load that runs takes longer than expected, and none of the others begins too late.
#[tokio::test(start_paused = true)]
async fn a_load_that_waits_too_long_is_not_started() {
    let database = Database::gated();
    let ask = service!(database.customers().max_loads(1));
    database.gate.add_permits(1);
    assert_eq!(ask("customer 0", address(0, 0)).await, OK);
    let first = tokio::spawn(ask("customer 1", address(0, 1)));
    yield_now().await;
    let second = tokio::spawn(ask("customer 2", address(0, 2)));
    sleep(150 * MS).await;
    let third = tokio::spawn(ask("customer 3", address(0, 3)));
    sleep(60 * MS).await;
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (UNAVAILABLE, UNAVAILABLE));
    assert_eq!(database.started(), 3, "the third begins when the first has timed out");
    database.gate.add_permits(1);
    assert_eq!(third.await.unwrap(), OK);
}

/// The application's subscriber panics when a load is refused, after others were started.
#[cfg(feature = "tracing")]
#[tokio::test(start_paused = true)]
async fn after_a_panic_of_a_subscriber_loads_are_still_started() {
    if !plimsoll_testing::alone(
        "lookup_flood::after_a_panic_of_a_subscriber_loads_are_still_started",
    ) {
        return;
    }
    let database = Database::gated();
    let ask = service!(database.customers().max_loads(1));
    let spawn = |key: &str, number| tokio::spawn(ask(key, address(0, number)));
    let measured = spawn("customer 0", 0);
    sleep(50 * MS).await;
    database.gate.add_permits(1);
    assert_eq!(measured.await.unwrap(), OK);
    let first = spawn("customer 1", 1);
    sleep(20 * MS).await;
    let second = spawn("customer 2", 2);
    sleep(130 * MS).await;
    let third = spawn("customer 3", 3);
    // After the time-out of the first load, the second one would take too long.
    let guard = tracing::subscriber::set_default(Panics);
    sleep(52 * MS).await;
    drop(guard);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (UNAVAILABLE, UNAVAILABLE));
    database.gate.add_permits(1);
    assert_eq!(third.await.unwrap(), OK);
    let fourth = spawn("customer 4", 4);
    let fifth = spawn("customer 5", 5);
    yield_now().await;
    database.gate.add_permits(2);
    assert_eq!((fourth.await.unwrap(), fifth.await.unwrap()), (OK, OK));
}

/// A subscriber that panics at the event of a load that was refused.
#[cfg(feature = "tracing")]
struct Panics;

#[cfg(feature = "tracing")]
impl tracing::field::Visit for Panics {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        assert_ne!(format!("{value:?}"), "\"overloaded\"", "on purpose");
    }
}

#[cfg(feature = "tracing")]
impl tracing::Subscriber for Panics {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("plimsoll")
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Panics);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// A runtime that nothing drives keeps the place of its load for four deadlines.
#[test]
fn a_load_that_makes_no_progress_gives_up_its_place() {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let database = Database::gated();
    let ask = service!(database.customers().max_loads(2));
    let idle = runtime();
    let mut stuck = [1, 2].map(|number| Box::pin(ask(&format!("{number}"), address(0, number))));
    {
        let _idle = idle.enter();
        let mut context = Context::from_waker(Waker::noop());
        assert!(stuck.iter_mut().all(|request| request.as_mut().poll(&mut context).is_pending()));
    }
    let driven = runtime();
    driven.block_on(async {
        sleep(500 * MS).await;
        assert_eq!(ask("customer 1", address(0, 3)).await, UNAVAILABLE);
        sleep(500 * MS).await;
        database.gate.add_permits(1);
        assert_eq!(ask("customer 2", address(0, 4)).await, OK);
    });
    // Their end frees no place a second time.
    drop((stuck, idle));
    driven.block_on(async {
        let requests = [5, 6, 7]
            .map(|number| tokio::spawn(ask(&format!("customer {number}"), address(0, number))));
        sleep(MS).await;
        assert_eq!(database.started(), 3);
        database.gate.add_permits(3);
        for request in requests {
            assert_eq!(request.await.unwrap(), OK);
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_load_without_its_request_is_not_started() {
    let database = Database::gated();
    let ask = service!(database.customers().max_loads(1));
    let first = tokio::spawn(ask("customer 1", address(0, 1)));
    yield_now().await;
    let (mut gone, mut stays) =
        (Box::pin(ask("customer 2", address(0, 2))), Box::pin(ask("customer 3", address(0, 3))));
    let (joined, also_gone) = (ask("customer 3", address(0, 4)), ask("customer 3", address(0, 5)));
    assert!(timeout(MS, &mut gone).await.is_err() && timeout(MS, &mut stays).await.is_err());
    assert!(timeout(MS, also_gone).await.is_err());
    let joined = tokio::spawn(joined);
    yield_now().await;
    drop((gone, stays));
    database.gate.add_permits(9);
    assert_eq!((first.await.unwrap(), joined.await.unwrap()), (OK, OK));
    assert_eq!(database.started(), 2, "one request still waits for the third");
    assert_eq!(ask("customer 2", address(0, 2)).await, OK);
}

/// A load that waits behind newer ones of its client is not joined when it cannot end in time.
#[tokio::test(start_paused = true)]
async fn a_request_does_not_join_a_load_that_is_late() {
    let database = Database::new(LOAD_TIME);
    let ask = service!(database.customers().max_loads(1));
    assert_eq!(ask("customer 0", address(0, 0)).await, OK);
    // One client causes more loads than can run. Its first one stays behind, and others wait for it.
    let mut others = JoinSet::new();
    others.spawn(ask("invented", address(0, 0)));
    others.spawn(ask("customer 1", address(0, 0)));
    let start = Instant::now();
    while start.elapsed() < 190 * MS {
        others.spawn(ask(&format!("invented at {:?}", start.elapsed()), address(0, 0)));
        others.spawn(ask("customer 1", address(0, 1)));
        sleep(LOAD_TIME).await;
    }
    assert_eq!(ask("customer 1", address(0, 1)).await, OK);
    others.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn clients_behind_a_proxy_take_turns_by_the_address_that_it_names() {
    let policy = Policy::new("api", "1000/h").unwrap();
    let database = Database::gated();
    let source = ClientIp::x_forwarded_for(["10.0.0.1"]).unwrap();
    let customers = database.customers().max_loads(1).client_ip(source);
    let rule =
        Rule::new(policy, customers.map(|id| *id)).on_failure(OnFailure::Deny).resolve(&customers);
    let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
    let service = layer.layer(service_fn(|_: Request<String>| {
        ready(Ok::<_, Infallible>(Response::new(String::new())))
    }));
    let ask = |key: String, address: &str| {
        let request = Request::get("/").header("x-api-key", key);
        let mut request = request.header("x-forwarded-for", address).body(String::new()).unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 443))));
        let service = service.clone();
        tokio::spawn(async move { service.oneshot(request).await.unwrap().status() })
    };
    let mut flood = Vec::new();
    for number in 0..3 {
        flood.push(ask(format!("invented {number}"), "192.0.2.1"));
        yield_now().await;
    }
    let customer = ask("customer".to_owned(), "192.0.2.2");
    for number in 3..6 {
        flood.push(ask(format!("invented {number}"), "192.0.2.1"));
        yield_now().await;
    }
    // The first of the flood is running. The next one of the flood has its turn before the customer.
    for permits in [2, 1] {
        assert!(!customer.is_finished());
        database.gate.add_permits(permits);
        advance(MS).await;
        yield_now().await;
        yield_now().await;
        advance(MS).await;
        yield_now().await;
    }
    sleep(MS).await;
    assert!(customer.is_finished(), "it is the third");
    database.gate.add_permits(9);
    assert_eq!(customer.await.unwrap(), OK);
}

#[tokio::test(start_paused = true)]
async fn long_keys_have_no_row_and_are_not_loaded() {
    let database = Database::new(LOAD_TIME);
    let ask = service!(database.customers());
    let longest = format!("customer {}", "k".repeat(247));
    assert_eq!(ask(&longest, address(0, 0)).await, OK);
    assert_eq!(database.started(), 1);
    for length in [257, 60_000] {
        assert_eq!(now(ask(&"k".repeat(length), address(0, 0))), UNAUTHORIZED);
    }
    assert_eq!(database.started(), 1);
    let ask = service!(database.customers().max_key_len(60_000));
    assert_eq!(ask(&"k".repeat(60_000), address(0, 0)).await, UNAUTHORIZED);
    assert_eq!(now(ask(&"k".repeat(60_001), address(0, 0))), UNAUTHORIZED);
    assert_eq!(database.started(), 2);
}
