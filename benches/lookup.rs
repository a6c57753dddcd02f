//! New customers of a `Lookup`, while other clients invent keys.
//!
//! `cargo bench --bench lookup --features lookup`. The database takes 20 ms, and 32 loads run at once, so it
//! answers 1,600 loads a second. Each line is a flood of 4 s. New customers come 50 times a second, each
//! from an address of its own. The columns are those of the tables in the guide's page on lookups. The first table
//! is made in simulated time.

use std::{
    convert::Infallible,
    future::ready,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::extract::ConnectInfo;
use http::{Request, Response, StatusCode, request::Parts};
use plimsoll::{
    Limiter, Lookup, MemoryStore, OnFailure, Policy, RateLimitLayer, Rule,
    by::{self, Or},
    clock::TokioClock,
    memory::MemoryConfig,
};
use tokio::{
    runtime::Builder,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tower::{Layer, ServiceExt, service_fn};

const LOAD_TIME: Duration = Duration::from_millis(20);
const CAPACITY: u64 = 1_600;
const TIME: Duration = Duration::from_secs(4);
/// The time between two new customers, of whom the first comes after this many.
const CUSTOMER_INTERVAL: Duration = Duration::from_millis(20);
const WARM_UP: u32 = 25;

/// Returns a function that sends a request with a key from an address, and returns the status: 503 if the
/// row cannot be loaded, and 401 if there is none.
macro_rules! service {
    ($loads:expr, $deadline:expr, $front:expr) => {{
        let loads = Arc::clone(&$loads);
        let key = |parts: &Parts| Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned());
        let customers = Lookup::new(key, move |key: String| {
            let loads = Arc::clone(&loads);
            async move {
                sleep(LOAD_TIME).await;
                loads.fetch_add(1, Relaxed);
                Ok::<_, Infallible>(key.starts_with("customer").then_some(1_u64))
            }
        })
        .deadline($deadline);
        let policy = Policy::new("api", "1000000/h token-bucket(1000000)");
        let rule = Rule::new(policy.unwrap(), customers.map(|id| *id).or(by::constant("others")))
            .on_failure(OnFailure::Deny)
            .resolve(&customers);
        let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
        let service = $front(layer.layer(service_fn(move |request: Request<()>| {
            let known = customers.row(request.extensions()).is_some();
            let mut response = Response::new(String::new());
            *response.status_mut() = if known { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            ready(Ok::<_, Infallible>(response))
        })));
        move |key: String, address: IpAddr| {
            let mut request = Request::get("/").header("x-api-key", key).body(()).unwrap();
            request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address, 443)));
            let service = service.clone();
            async move { service.oneshot(request).await.unwrap().status() }
        }
    }};
}

/// Returns the layer of the guide, which limits requests without a row by address.
fn front() -> RateLimitLayer {
    let unknown = Policy::new("unknown-keys", "30/min token-bucket(20)").unwrap();
    let refunded =
        |status| !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::SERVICE_UNAVAILABLE);
    let rule =
        Rule::new(unknown, by::peer_ip()).refund_if(move |response| refunded(response.status));
    let store = MemoryStore::new(MemoryConfig::default().clock(TokioClock::new()));
    RateLimitLayer::new(Limiter::new(store), rule)
}

/// Returns the address with this number. Each is in a /64 of its own.
fn address(network: u16, number: u64) -> IpAddr {
    let [high, low] = [number >> 16, number & 0xffff].map(|it| it as u16);
    Ipv6Addr::new(0x2001, 0xdb8, network, low, high, 0, 0, 1).into()
}

/// The result of a flood: the invented keys a second, the share of the customers that were served, and their sorted
/// waits in milliseconds.
struct Served {
    rate: u64,
    share: f64,
    waits: Vec<u128>,
}

/// Invents `rate` keys a second, from this many addresses.
async fn flood<F>(addresses: u64, rate: u64, ask: impl Fn(String, IpAddr) -> F) -> Served
where
    F: Future<Output = StatusCode> + Send + 'static,
{
    let mut invented = JoinSet::new();
    let start = Instant::now();
    let flooding = async {
        let mut sent = 0;
        let mut tick = interval(Duration::from_millis(1));
        while start.elapsed() < TIME {
            let due = start.elapsed().as_micros() as u64 * rate / 1_000_000;
            for number in sent..due {
                invented.spawn(ask(format!("invented {number}"), address(0, number % addresses)));
            }
            sent = due;
            while invented.try_join_next().is_some() {}
            tick.tick().await;
        }
        sent
    };
    let coming = async {
        let mut customers = JoinSet::new();
        let mut tick = interval(CUSTOMER_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for number in 0.. {
            tick.tick().await;
            if start.elapsed() >= TIME {
                break;
            }
            if number >= WARM_UP {
                let request = ask(format!("customer {number}"), address(1, number.into()));
                let sent = Instant::now();
                customers.spawn(async move { (request.await, sent.elapsed()) });
            }
        }
        customers.join_all().await
    };
    let (sent, customers) = tokio::join!(flooding, coming);
    let total = customers.len();
    let served = customers.into_iter().filter(|(status, _)| *status == StatusCode::OK);
    let mut waits: Vec<_> = served.map(|(_, wait)| wait.as_millis()).collect();
    waits.sort_unstable();
    invented.shutdown().await;
    let share = 100.0 * waits.len() as f64 / total as f64;
    Served { rate: sent * 1_000 / TIME.as_millis() as u64, share, waits }
}

/// Prints the share of the customers that are served: with the defaults, a longer deadline, a limit in front, and
/// both.
fn protections() {
    println!("| addresses | by default | a deadline of 1 s | a limit in front | both |");
    println!("|---|---|---|---|---|");
    for addresses in [100, 600, 3_000] {
        let share = |deadline: Duration, is_protected: bool| {
            let runtime =
                Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let loads = Arc::new(AtomicUsize::new(0));
                let served = if is_protected {
                    let front = front();
                    let ask = service!(loads, deadline, |service| front.layer(service));
                    flood(addresses, 50_000, ask).await
                } else {
                    flood(addresses, 50_000, service!(loads, deadline, |service| service)).await
                };
                format!("{:.0} %", served.share)
            })
        };
        let (short, long) = (Duration::from_millis(200), Duration::from_secs(1));
        let shares = [(short, false), (long, false), (short, true), (long, true)];
        let shares = shares.map(|(deadline, is_protected)| share(deadline, is_protected));
        println!("| {addresses} | {} |", shares.join(" | "));
    }
}

fn main() {
    protections();
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    println!(
        "| addresses | invented keys a second | new customers served | wait, median | 99 % | loads a second |"
    );
    println!("|---|---|---|---|---|---|");
    for addresses in [1, 100, 10_000] {
        for times in [1, 2, 5] {
            let loads = Arc::new(AtomicUsize::new(0));
            let ask = service!(loads, Duration::from_millis(200), |service| service);
            let (start, rate) = (Instant::now(), times * CAPACITY);
            let served = runtime.block_on(flood(addresses, rate, ask));
            let loads = loads.load(Relaxed) as f64 / start.elapsed().as_secs_f64();
            let waits = &served.waits;
            let at =
                |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or_default();
            println!(
                "| {addresses} | {} | {:.0} % | {} ms | {} ms | {loads:.0} |",
                served.rate,
                served.share,
                at(50),
                at(99),
            );
        }
    }
}
