//! Three points of the capacity plan, measured: a server, a cluster of three, and a server with the load of
//! one of those.

use std::time::Duration;

use plimsoll::{Limiter, Policy, RedisStore, Resilience, redis::RedisConfig};
use plimsoll_testing::{
    seed::Random,
    servers::{Cluster, Server},
};
use tokio::time::Instant;

use crate::{
    load::{charge_each, charge_random, steady},
    redis_info::{Counts, used_memory},
};

const TIME: Duration = Duration::from_secs(8);
const PROCESSES: usize = 4;

/// A point of the plan.
struct Point {
    name: &'static str,
    quota: &'static str,
    keys: u64,
    rate: f64,
}

const SERVER: Point = Point { name: "one server", quota: "100/min", keys: 200_000, rate: 8_000.0 };
const CLUSTER: Point = Point {
    name: "a cluster of three",
    quota: "100/min token-bucket(100)",
    keys: 100_000,
    rate: 8_000.0,
};
/// The load of one server of the cluster, without a cluster: how much of a command's cost is due to the load.
const THIRD: Point = Point {
    name: "one server with a third of that load",
    keys: CLUSTER.keys / 3,
    rate: CLUSTER.rate / 3.0,
    ..CLUSTER
};

/// Prints what the servers of each point measured in total.
pub(crate) async fn print() {
    println!(
        "point,quota,keys,rate,processes,nodes,round_trip_us,decisions,commands,redis_cpu_share,memory"
    );
    run_alone(&SERVER).await;
    let cluster = Cluster::start();
    run(&CLUSTER, &cluster.nodes, RedisConfig::cluster(cluster.urls())).await;
    drop(cluster);
    run_alone(&THIRD).await;
}

async fn run_alone(point: &Point) {
    let server = Server::start();
    run(point, std::slice::from_ref(&server), RedisConfig::url(server.url())).await;
}

async fn run(point: &Point, servers: &[Server], config: RedisConfig) {
    let policy = Policy::new("limits", point.quota).expect("valid");
    let patience = Duration::from_secs(30);
    let config = config.connect_timeout(patience).response_timeout(patience);
    let mut limiters = Vec::new();
    for _ in 0..PROCESSES {
        let store = RedisStore::connect_with(config.clone()).await.expect("a store");
        limiters.push(Limiter::with_resilience(store, Resilience::none()));
    }
    let memory = || servers.iter().map(used_memory).sum::<u64>();
    let before = memory();
    // The checks of a whole window, at once: each key is in use.
    let in_window = (point.rate * policy.quota().window().as_secs_f64()) as u64;
    charge_each(&limiters[0], &policy, point.keys).await;
    charge_random(&limiters[0], &policy, point.keys, in_window.saturating_sub(point.keys)).await;
    let filled = memory() - before;
    let trip = round_trip(&limiters[0], &policy).await;
    let counts = || servers.iter().map(Counts::of).collect::<Vec<_>>();
    let (before, keys, begin) = (counts(), point.keys, Instant::now());
    let key = move |random: &mut Random| random.below(keys);
    let (decisions, _) = steady(&limiters, &policy, point.rate, TIME, key).await;
    let seconds = begin.elapsed().as_secs_f64();
    let used = counts().into_iter().zip(before).map(|(after, before)| after.since(before));
    let (cpu, calls) = used.fold((0.0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    println!(
        "{},{},{},{},{PROCESSES},{},{:.0},{decisions},{:.0},{:.4},{filled}",
        point.name,
        point.quota,
        point.keys,
        decisions as f64 / seconds,
        servers.len(),
        trip.as_secs_f64() * 1e6,
        calls as f64 / seconds,
        cpu / 1e6 / seconds,
    );
}

/// Returns the median time of a check, one at a time.
async fn round_trip(limiter: &Limiter, policy: &Policy) -> Duration {
    let mut times = Vec::new();
    for key in 0..1_000 {
        let begin = Instant::now();
        let _ = limiter.check(policy.charge(key, 0)).await.expect("an answer");
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}
