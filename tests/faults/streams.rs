//! Units in flight of many streams over a Redis at a distance: all of them are renewed in time, and released soon.

use std::{env, sync::Arc, time::Duration};

use plimsoll::{
    Limiter, Policy, RedisStore, Resilience,
    limiter::{Reservation, Reserved},
    redis::RedisConfig,
};
use plimsoll_testing::{
    calm::eventually,
    policy,
    servers::{PATIENCE, Server, until},
};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{distance::relay, whole_machine};

const ROUND_TRIP: Duration = Duration::from_millis(30);

async fn limiter(config: RedisConfig, resilience: Resilience) -> Limiter {
    let config = config.connect_timeout(PATIENCE).response_timeout(PATIENCE);
    Limiter::with_resilience(RedisStore::connect_with(config).await.expect("a store"), resilience)
}

/// The deadline of 50 ms is in force, and a late machine is no outage.
fn of_streams() -> Resilience {
    Resilience::default().without_fallback().without_breaker()
}

/// Takes the only unit of each key.
async fn take(limiter: &Limiter, policy: &Policy, keys: u32) -> Vec<Reservation> {
    let (mut tasks, places) = (JoinSet::new(), Arc::new(Semaphore::new(500)));
    for key in 0..keys {
        let (limiter, policy, places) = (limiter.clone(), policy.clone(), Arc::clone(&places));
        tasks.spawn(async move {
            let _place = places.acquire().await.expect("open");
            loop {
                match limiter.reserve(policy.charge(key, 1)).await {
                    Ok(Reserved::Held(held)) => return held,
                    // The unit of a check whose answer was late is released or expires.
                    Ok(Reserved::Denied(_)) | Err(_) => sleep(Duration::from_millis(100)).await,
                }
            }
        });
    }
    tasks.join_all().await
}

/// Returns the number of keys whose unit is free.
async fn free(limiter: &Limiter, policy: &Policy, keys: u32) -> usize {
    let mut free = 0;
    for first in (0..keys).step_by(32) {
        let charges = (first..keys.min(first + 32)).map(|key| policy.charge(key, 0));
        let peek = limiter
            .peek(charges.collect::<plimsoll::policy::Charges<'_>>())
            .await
            .expect("an answer");
        free += peek.outcomes().filter(|it| it.standing().remaining > 0).count();
    }
    free
}

/// `PLIMSOLL_STREAMS` and `PLIMSOLL_STREAMS_EXPIRY` change the number of streams and the expiry in seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_keep_their_units_at_a_distance() {
    let _machine = whole_machine().await;
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().expect("a number"));
    let streams = number("PLIMSOLL_STREAMS").unwrap_or(4_000);
    let expiry = number("PLIMSOLL_STREAMS_EXPIRY").unwrap_or(4);
    let server = Server::start();
    let distant =
        limiter(RedisConfig::url(relay(server.port, ROUND_TRIP).await), of_streams()).await;
    let observer = limiter(RedisConfig::url(server.url()), Resilience::none()).await;
    let policy = policy("streams", &format!("1 concurrent expires({expiry}s)"));
    let held = take(&distant, &policy, streams).await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(u64::from(expiry) * 5 / 2) {
        sleep(Duration::from_millis(300)).await;
        let free = free(&observer, &policy, streams).await;
        assert_eq!(free, 0, "of {streams} streams, after {:?}", start.elapsed());
    }
    drop(held);
    let start = Instant::now();
    eventually("all units are free", async || {
        free(&observer, &policy, streams).await == streams as usize
    })
    .await;
    let took = start.elapsed();
    eprintln!("measured: {streams} streams held for 2.5 x {expiry} s, released in {took:?}");
    assert!(took < Duration::from_secs(u64::from(expiry)) / 2, "{took:?}");
}

/// The keys of a batch are in many slots, which are asked at the same time. One after the other, they would take
/// longer than the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_keep_their_units_in_a_distant_cluster() {
    let _machine = whole_machine().await;
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    server.add_slots(0..16_384);
    let url = relay(server.port, ROUND_TRIP).await;
    let port = url.trim_end_matches('/').rsplit(':').next().expect("a port");
    server.ask::<()>(&format!("CONFIG SET cluster-announce-port {port}"));
    server.ask::<()>("CONFIG SET cluster-announce-ip 127.0.0.1");
    until("the cluster is up", || {
        server.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
            && server.ask::<String>("CLUSTER NODES").contains(&format!(":{port}@"))
    });
    let config = || RedisConfig::cluster([url.as_str()]);
    let distant = limiter(config(), of_streams()).await;
    let observer = limiter(config(), Resilience::none()).await;
    let policy = policy("streams", "1 concurrent expires(2s)");
    let streams = 100;
    let held = take(&distant, &policy, streams).await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        sleep(Duration::from_millis(100)).await;
        let free = free(&observer, &policy, streams).await;
        assert_eq!(free, 0, "after {:?}", start.elapsed());
    }
    drop(held);
    let start = Instant::now();
    let all = async || free(&observer, &policy, streams).await == streams as usize;
    eventually("all units are free", all).await;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}
