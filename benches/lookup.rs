//! New customers of a `Lookup`, while other clients invent keys.
//!
//! `cargo bench --bench lookup --features lookup`. The database takes 20 ms, and 32 loads run at once, so it
//! answers 1,600 loads a second. Each line is a flood of 4 s. New customers come 50 times a second, each
//! from an address of its own. The columns are those of the table in the guide's page on lookups.

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
    Limiter, Lookup, OnFailure, Policy, RateLimitLayer, Rule,
    by::{self, Or},
};
use tokio::{
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
/// row cannot be loaded.
macro_rules! service {
    ($loads:expr) => {{
        let loads = Arc::clone(&$loads);
        let key = |parts: &Parts| Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned());
        let customers = Lookup::new(key, move |key: String| {
            let loads = Arc::clone(&loads);
            async move {
                sleep(LOAD_TIME).await;
                loads.fetch_add(1, Relaxed);
                Ok::<_, Infallible>(key.starts_with("customer").then_some(1_u64))
            }
        });
        let policy = Policy::new("api", "1000000/h token-bucket(1000000)");
        let rule = Rule::new(policy.unwrap(), customers.map(|id| *id).or(by::constant("others")))
            .with_on_failure(OnFailure::Deny)
            .resolve(&customers);
        let service =
            RateLimitLayer::new(Limiter::in_memory(), rule).layer(service_fn(|_: Request<()>| {
                ready(Ok::<_, Infallible>(Response::new(String::new())))
            }));
        move |key: String, address: IpAddr| {
            let mut request = Request::get("/").header("x-api-key", key).body(()).unwrap();
            request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address, 443)));
            let service = service.clone();
            async move { service.oneshot(request).await.unwrap().status() }
        }
    }};
}

/// Returns the address with this number. Each is in a /64 of its own.
fn address(network: u16, number: u64) -> IpAddr {
    let [high, low] = [number >> 16, number & 0xffff].map(|it| it as u16);
    Ipv6Addr::new(0x2001, 0xdb8, network, low, high, 0, 0, 1).into()
}

/// Invents `rate` keys a second, from this many addresses, and prints a line of the table.
async fn flood(addresses: u64, rate: u64) {
    let loads = Arc::new(AtomicUsize::new(0));
    let ask = service!(loads);
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
    let seconds = start.elapsed().as_secs_f64();
    let loads = loads.load(Relaxed) as f64 / seconds;
    let total = customers.len();
    let served = customers.into_iter().filter(|(status, _)| *status == StatusCode::OK);
    let mut waits: Vec<_> = served.map(|(_, wait)| wait.as_millis()).collect();
    waits.sort_unstable();
    let at = |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or_default();
    println!(
        "| {addresses} | {} | {:.0} % | {} ms | {} ms | {loads:.0} |",
        sent * 1_000 / TIME.as_millis() as u64,
        100.0 * waits.len() as f64 / total as f64,
        at(50),
        at(99),
    );
    invented.shutdown().await;
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    println!(
        "| addresses | invented keys a second | new customers served | wait, median | 99 % | loads a second |"
    );
    println!("|---|---|---|---|---|---|");
    for addresses in [1, 100, 10_000] {
        for times in [1, 2, 5] {
            runtime.block_on(flood(addresses, times * CAPACITY));
        }
    }
}
