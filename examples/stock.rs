//! Records the stock of an instance: `cargo run -p plimsoll-examples --features redis --example stock`.
//!
//! Two instances of a service share 600 units in 10 s, with a lease of 500 ms. The clients of the first
//! ask for 100 units a second, with a pause of one second. The clients of the second ask for 50 units a second
//! without a pause. Each line is 20 ms: the units in the stock of the first instance and the units that Redis
//! has left, both at the end of it, and the units that the first instance has admitted and denied.
//!
//! The example needs `redis-server`. It starts one of its own, on a free port.

#[path = "support/redis_server.rs"]
mod redis_server;

use std::{
    error::Error,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use plimsoll::{Decision, Limiter, Policy, RedisStore, redis::RedisConfig};
use redis_server::RedisServer;
use tokio::time::{Instant, interval_at, sleep, sleep_until};

const LENGTH: Duration = Duration::from_millis(6_500);
const PAUSE: Range<Duration> = Duration::from_secs(2)..Duration::from_secs(3);
const LINE: Duration = Duration::from_millis(20);
const KEY: &str = "everybody";

/// The units that an instance has admitted and denied.
#[derive(Debug, Default)]
struct Counts {
    admitted: AtomicU64,
    denied: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = redis_server::free_port()?;
    let _redis = RedisServer::start(port)?;
    let policy = Policy::new("api", "600/10s leased(500ms)")?;

    // A service has one limiter a process. Here, two limiters stand for two processes. The third one
    // has no stock, so it sees the units that are left in Redis.
    let first = connect(port).await?;
    let second = connect(port).await?;
    let observer = connect(port).await?;
    while [&first, &second, &observer].iter().any(|it| it.status().not_ready.is_some()) {
        sleep(Duration::from_millis(10)).await;
    }

    let counts = Arc::new(Counts::default());
    let begin = Instant::now();
    let every = Duration::from_millis;
    tokio::spawn(load(second, policy.clone(), begin, every(20), None, Arc::default()));
    tokio::spawn(load(
        first.clone(),
        policy.clone(),
        begin,
        every(10),
        Some(PAUSE),
        counts.clone(),
    ));

    println!("milliseconds,stock,free,admitted,denied");
    for number in 1..=(LENGTH.as_millis() / LINE.as_millis()) as u32 {
        sleep_until(begin + number * LINE).await;
        let peek = observer.peek(policy.charge(KEY, 0)).await?;
        let free = peek.binding().map_or(0, |outcome| outcome.standing().remaining);
        let stock = first.status().leased_units;
        let admitted = counts.admitted.swap(0, Relaxed);
        let denied = counts.denied.swap(0, Relaxed);
        println!("{},{stock},{free},{admitted},{denied}", number * LINE.as_millis() as u32);
    }
    first.close().await?;
    Ok(())
}

/// Connects to Redis in the background.
async fn connect(port: u16) -> Result<Limiter, plimsoll::Error> {
    let config = RedisConfig::url(format!("redis://127.0.0.1:{port}/")).lazy(true);
    RedisStore::connect_with(config).await.map(Limiter::new)
}

/// Asks `limiter` for a unit in the middle of each `interval`, except in the pause.
async fn load(
    limiter: Limiter,
    policy: Policy,
    begin: Instant,
    interval: Duration,
    pause: Option<Range<Duration>>,
    counts: Arc<Counts>,
) {
    let mut ticks = interval_at(begin + interval / 2, interval);
    loop {
        let due = ticks.tick().await - begin;
        if pause.as_ref().is_some_and(|pause| pause.contains(&due)) {
            continue;
        }
        let limiter = limiter.clone();
        let policy = policy.clone();
        let counts = counts.clone();
        tokio::spawn(async move {
            let count = match limiter.check(policy.charge(KEY, 1)).await {
                Ok(Decision::Allowed(_)) => &counts.admitted,
                _ => &counts.denied,
            };
            count.fetch_add(1, Relaxed);
        });
    }
}
