//! Kills a Redis server under load: `cargo run -p plimsoll-examples --features redis --example outage`.
//!
//! Two instances of a service count themselves in Redis. They share 200 units a second, and their clients ask for 400.
//! After 3 seconds Redis is killed, and after 6 seconds an empty one is started. Each line is 100 ms: the units that
//! Redis admitted, the units that the instances admitted by themselves, and the longest wait of a check.
//!
//! The example needs `redis-server`. It starts one of its own, on a free port.

#[path = "support/redis_server.rs"]
mod redis_server;

use std::{error::Error, time::Duration};

use plimsoll::{Limiter, Policy, RedisStore, Resilience, redis::RedisConfig, store::Source};
use redis_server::RedisServer;
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, interval, sleep, sleep_until},
};

const LENGTH: Duration = Duration::from_secs(9);
const LINE: Duration = Duration::from_millis(100);

/// A check that a client has asked for.
struct Checked {
    due: Duration,
    wait: Duration,
    admitted: bool,
    source: Source,
}

#[derive(Default, Clone)]
struct Line {
    by_redis: u32,
    by_instances: u32,
    longest_wait: Duration,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = redis_server::free_port()?;
    let redis = RedisServer::start(port)?;
    let url = format!("redis://127.0.0.1:{port}/");
    let policy = Policy::new("api", "200/s token-bucket(20)")?;

    // A service has one limiter a process. Here, two limiters stand for two processes.
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::connect_with(RedisConfig::url(&url).lazy(true)).await?;
        limiters.push(Limiter::with_resilience(store, Resilience::default()));
    }
    while limiters.iter().any(|limiter| limiter.status().instances != Some(2)) {
        sleep(Duration::from_millis(10)).await;
    }

    let (checked, mut results) = unbounded_channel();
    let begin = Instant::now();
    for limiter in limiters {
        tokio::spawn(load(limiter, policy.clone(), begin, checked.clone()));
    }
    drop(checked);

    sleep_until(begin + Duration::from_secs(3)).await;
    drop(redis);
    sleep_until(begin + Duration::from_secs(6)).await;
    let _redis = RedisServer::start(port)?;

    let mut lines = vec![Line::default(); (LENGTH.as_millis() / LINE.as_millis()) as usize];
    while let Some(checked) = results.recv().await {
        let line = &mut lines[(checked.due.as_millis() / LINE.as_millis()) as usize];
        match checked.source {
            Source::Fallback => line.by_instances += u32::from(checked.admitted),
            _ => line.by_redis += u32::from(checked.admitted),
        }
        line.longest_wait = line.longest_wait.max(checked.wait);
    }
    println!("milliseconds,by_redis,by_instances,longest_wait_ms");
    for (number, line) in lines.iter().enumerate() {
        let wait = line.longest_wait.as_secs_f64() * 1e3;
        println!("{},{},{},{wait:.1}", number * 100, line.by_redis, line.by_instances);
    }
    Ok(())
}

/// Asks `limiter` for a unit every 5 ms, without waiting for the answer to the previous one.
async fn load(limiter: Limiter, policy: Policy, begin: Instant, checked: UnboundedSender<Checked>) {
    let mut ticks = interval(Duration::from_millis(5));
    loop {
        let due = ticks.tick().await - begin;
        if due >= LENGTH {
            return;
        }
        let limiter = limiter.clone();
        let policy = policy.clone();
        let checked = checked.clone();
        tokio::spawn(async move {
            let asked = Instant::now();
            let decision = limiter.check(policy.charge("a client", 1)).await;
            let decision = decision.expect("the fallback decides").into_owned();
            let admitted = decision.is_allowed();
            let source = decision.source();
            let _ = checked.send(Checked { due, wait: asked.elapsed(), admitted, source });
        });
    }
}
