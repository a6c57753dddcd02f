//! Clients that invent keys, and the customers whose rows are loaded meanwhile, behind the stack of the README: a
//! limit by address in front of the lookup. tokio's paused clock moves by itself, so a flood of some seconds takes
//! no longer than its work.

use std::{
    convert::Infallible,
    future::ready,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::extract::ConnectInfo;
use http::{Request, Response, StatusCode, request::Parts};
use plimsoll::{
    Limiter, MemoryStore, Policy, RateLimitLayer, Rule, by, clock::TokioClock, memory::MemoryConfig,
};
use plimsoll_lookup::{LookupLayer, row};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, ServiceExt, service_fn};

const MS: Duration = Duration::from_millis(1);
const LOAD_TIME: Duration = Duration::from_millis(20);
/// 32 loads of 20 ms at once.
const CAPACITY: usize = 1_600;
const OK: StatusCode = StatusCode::OK;
const UNAUTHORIZED: StatusCode = StatusCode::UNAUTHORIZED;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// A database that takes a time for each load, and counts them.
#[derive(Default)]
struct Database {
    started: AtomicUsize,
}

impl Database {
    fn customers(self: &Arc<Self>) -> LookupLayer<u64> {
        let database = Arc::clone(self);
        let key = |parts: &Parts| Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned());
        let load = move |key: String| {
            let database = Arc::clone(&database);
            async move {
                database.started.fetch_add(1, SeqCst);
                sleep(LOAD_TIME).await;
                Ok::<_, Infallible>(key.starts_with("customer").then_some(1))
            }
        };
        LookupLayer::new(key, load).deny_on_failure()
    }

    fn started(&self) -> usize {
        self.started.load(SeqCst)
    }
}

/// Returns the layer in front of the lookup: requests without a row are limited by address.
fn front() -> RateLimitLayer {
    let unknown = Policy::new("unknown-keys", "30/min token-bucket(20)").unwrap();
    let rule = Rule::new(unknown, by::peer_ip())
        .refund_if(|response| !matches!(response.status, UNAUTHORIZED | UNAVAILABLE));
    let store = MemoryStore::new(MemoryConfig::default().clock(TokioClock::new()));
    RateLimitLayer::new(Limiter::new(store), rule)
}

/// Returns a function that sends a request with a key from an address, and returns the status: 503 if the
/// row cannot be loaded, and 401 if there is none.
macro_rules! service {
    ($database:expr, $front:expr) => {{
        let service = service_fn(|request: Request<String>| {
            let known = row::<u64>(request.extensions()).is_some();
            let mut response = Response::new(String::new());
            *response.status_mut() = if known { OK } else { UNAUTHORIZED };
            ready(Ok::<_, Infallible>(response))
        });
        let service = $front.layer($database.customers().layer(service));
        move |key: &str, address: IpAddr| {
            let request = Request::get("/").header("x-api-key", key);
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

/// A flood of invented keys.
#[derive(Clone, Copy)]
struct Flood {
    addresses: usize,
    /// Keys a second.
    rate: usize,
    /// The number of the next customers whose rows the flood asks for each millisecond, before they come.
    named: usize,
    /// The time after which a client of the flood drops its request.
    patience: Duration,
    /// The millisecond in which the first customer comes. The flood lasts for 1.5 s longer.
    warm_up: usize,
}

impl Flood {
    /// Invents keys, while a new customer comes every 7 ms after the warm-up, from an address of its own.
    /// Returns the share of the customers that are served, and the longest wait of one.
    async fn run<F>(self, ask: impl Fn(&str, IpAddr) -> F) -> (f64, Duration)
    where
        F: Future<Output = StatusCode> + Send + 'static,
    {
        let Self { addresses, rate, named, warm_up, patience } = self;
        let (mut invented, mut customers) = (JoinSet::new(), JoinSet::new());
        for millisecond in 0..warm_up + 1_500 {
            let numbers = rate * millisecond / 1_000..rate * (millisecond + 1) / 1_000;
            // A customer comes at another place among the others each time.
            let place = numbers.start + millisecond / 7 % numbers.len();
            for number in numbers {
                if millisecond >= warm_up && millisecond % 7 == 0 && number == place {
                    let client = address(1, millisecond);
                    let asked = ask(&format!("customer {millisecond}"), client);
                    customers.spawn(async move {
                        let start = Instant::now();
                        (asked.await, start.elapsed())
                    });
                }
                let client = address(0, number % addresses);
                invented.spawn(timeout(patience, ask(&format!("invented {number}"), client)));
            }
            let next = millisecond.max(warm_up - 1) / 7 + 1;
            for number in next..next + named {
                let client = address(0, millisecond % addresses);
                let asked = ask(&format!("customer {}", 7 * number), client);
                invented.spawn(timeout(patience, asked));
            }
            sleep(MS).await;
        }
        let total = customers.len() as f64;
        let customers = customers.join_all().await;
        invented.join_all().await;
        let served = customers.iter().filter(|(status, _)| *status == OK).count() as f64 / total;
        (served, customers.iter().map(|(_, wait)| *wait).max().unwrap())
    }
}

const FLOOD: Flood =
    Flood { addresses: 1, rate: CAPACITY, named: 0, warm_up: 500, patience: Duration::MAX };

#[tokio::test(start_paused = true)]
async fn invented_keys_keep_no_new_customer_of_another_address_waiting() {
    for addresses in [1, 100] {
        for times in [1, 2, 5] {
            let rate = times * CAPACITY;
            // The burst of each address is spent, and its loads have ended.
            let warm_up = 500.max(20 * addresses * 1_000 / rate + 250);
            let flood = Flood { addresses, rate, warm_up, ..FLOOD };
            let database = Arc::<Database>::default();
            let (served, longest) = flood.run(service!(database, front())).await;
            assert_eq!(served, 1.0, "{addresses} addresses, {times} x");
            assert!(longest <= 4 * LOAD_TIME, "{addresses} addresses, {times} x: {longest:?}");
        }
    }
}

/// After a quarter of a second, the flood has spent the burst of each address. Its last loads end later.
#[tokio::test(start_paused = true)]
async fn the_limit_in_front_serves_all_customers_among_many_addresses() {
    let flood = Flood { addresses: 600, rate: 50_000, ..FLOOD };
    let database = Arc::<Database>::default();
    let (served, longest) = flood.run(service!(database, front())).await;
    assert_eq!(served, 1.0);
    assert!(longest <= 4 * LOAD_TIME, "{longest:?}");
    // Without the layer in front, the database works at its capacity.
    assert!(database.started() < 3 * CAPACITY / 2, "{} loads", database.started());
}

/// A request that is dropped gets no response, so its charge is not refunded.
#[tokio::test(start_paused = true)]
async fn clients_that_do_not_wait_for_their_responses_gain_nothing() {
    for patience in [Duration::ZERO, MS, 19 * MS] {
        let flood = Flood { addresses: 100, rate: 50_000, patience, ..FLOOD };
        let database = Arc::<Database>::default();
        let (served, longest) = flood.run(service!(database, front())).await;
        assert_eq!(served, 1.0, "{patience:?}");
        assert!(longest <= 4 * LOAD_TIME, "{patience:?}: {longest:?}");
    }
}

/// A customer joins the load of its row that a flood has asked for first.
#[tokio::test(start_paused = true)]
async fn a_flood_that_names_the_next_customers_delays_none_of_them() {
    for addresses in [1, 50] {
        for patience in [Duration::MAX, MS] {
            let flood = Flood { addresses, rate: 5 * CAPACITY, named: 3, patience, ..FLOOD };
            let database = Arc::<Database>::default();
            let (served, longest) = flood.run(service!(database, front())).await;
            assert_eq!(served, 1.0, "{addresses} addresses");
            assert!(longest <= 4 * LOAD_TIME, "{addresses} addresses: {longest:?}");
        }
    }
}

/// The attacks above are attacks: without the layer in front, they keep customers from being served.
#[tokio::test(start_paused = true)]
async fn without_the_limit_in_front_a_flood_keeps_customers_waiting() {
    let flood = Flood { rate: 5 * CAPACITY, ..FLOOD };
    let database = Arc::<Database>::default();
    let (served, _) = flood.run(service!(database, tower::layer::util::Identity::new())).await;
    assert!(served < 0.5, "{served}");
}
