//! A fleet that counts itself: processes and stores come and go while a real Redis is killed, hangs and is flushed. Units
//! are counted by this test, from outside.

use std::time::Duration;

use plimsoll::{Decision, Limiter, RedisStore, Resilience, redis::RedisConfig};
use plimsoll_testing::{
    role::{Role, end_of_input},
    servers::{Cluster, Guarded, PATIENCE, Server, run, until},
};
use tokio::time::{Instant, sleep};

use crate::policy;

const LIMIT: u64 = 120;
const URL: &str = "PLIMSOLL_TEST_URL";

/// The role of an instance: it checks the same key without end, and says which instances it knows and what it has
/// admitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role: another test starts it"]
async fn instance() {
    let url = std::env::var(URL).expect("a role");
    let store = RedisStore::connect_with(RedisConfig::url(url).lazy(true)).await.expect("a store");
    let limiter = Limiter::new(store);
    let api = policy("api", &format!("{LIMIT}/h"));
    let checks = async {
        let mut known = None;
        loop {
            let instances = limiter.status().instances;
            if instances != known {
                known = instances;
                println!("\nknows {}", known.unwrap_or_default());
            }
            let check = limiter.check(api.charge("all", 1)).await;
            if let Decision::Allowed(allowed) = check.expect("it falls back") {
                println!("\nadmitted at {}", allowed.into_receipt().time.as_micros());
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = checks => {}
        () = end_of_input() => println!("\nends"),
    }
}

fn start(server: &Server) -> Role {
    Role::start("instances::instance", &[(URL, &server.url())])
}

/// Waits until an instance knows so many.
fn until_knows(instance: &mut Role, count: u32, admitted: &mut u64) {
    loop {
        let line = instance.says("");
        *admitted += u64::from(line.starts_with("admitted"));
        if line == format!("knows {count}") {
            return;
        }
    }
}

/// Ends an instance, and returns the units that it has admitted since [`until_knows`].
fn end(instance: Role) -> u64 {
    instance.end().lines().filter(|line| line.starts_with("admitted")).count() as u64
}

/// Five processes are three after two have ended, and four after one has started. Redis is killed, and together they
/// admit the limit once more, although one of them ends. Two that start meanwhile have no count, so each admits the limit.
/// Redis comes back without its data, which costs no more than a limit.
#[tokio::test]
async fn processes_admit_twice_the_limit_around_the_death_of_redis() {
    let mut server = Server::start();
    let mut admitted = 0;
    let mut fleet: Vec<_> = (0..5).map(|_| start(&server)).collect();
    fleet.iter_mut().for_each(|instance| until_knows(instance, 5, &mut admitted));
    admitted += fleet.drain(3..).map(end).sum::<u64>();
    fleet.iter_mut().for_each(|instance| until_knows(instance, 3, &mut admitted));
    fleet.push(start(&server));
    fleet.iter_mut().for_each(|instance| until_knows(instance, 4, &mut admitted));
    assert_eq!(admitted, LIMIT, "Redis decides");

    server.kill();
    sleep(Duration::from_secs(2)).await;
    let one_that_ends = end(fleet.remove(0));
    // On a busy machine it has not used all of its share yet.
    assert!((1..=LIMIT / 4).contains(&one_that_ends), "{one_that_ends}: the share of one of four");
    let started: Vec<_> = (0..2).map(|_| start(&server)).collect();
    sleep(Duration::from_secs(8)).await;
    let of_started: Vec<_> = started.into_iter().map(end).collect();
    let are_whole = of_started.iter().all(|units| (LIMIT / 4 + 1..=LIMIT).contains(units));
    assert!(are_whole, "{of_started:?}: they know no count");

    server.run();
    sleep(Duration::from_secs(4)).await;
    let others: u64 = fleet.into_iter().map(end).sum();
    assert!(others <= 3 * (LIMIT / 4) + LIMIT, "{others} units of three instances");
    server.assert_all_keys_expire();
}

/// Four limiters with stores of their own. Whatever happens to Redis, none of them knows fewer than four.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_hangs_or_is_flushed_counts_no_fewer() {
    let server = Server::start();
    let limiters = fleet(4, || RedisConfig::url(server.url())).await;
    server.ask::<()>("FLUSHALL");
    assert_stays(&limiters, 4, Duration::from_secs(6)).await;
    let pid = server.pid().to_string();
    for pause in [7, 1] {
        run(".".as_ref(), "kill", &["-STOP", &pid]);
        assert_stays(&limiters, 4, Duration::from_secs(pause)).await;
        run(".".as_ref(), "kill", &["-CONT", &pid]);
        assert_stays(&limiters, 4, Duration::from_secs(2)).await;
    }
    // Units whose replies were lost have expired, and are forgotten.
    sleep(Duration::from_secs(16)).await;
    until_all_know(&limiters, 4).await;
    server.assert_all_keys_expire();
    drop(limiters);
    until("the instances are forgotten", || server.keys().is_empty());
}

/// The key of the instances is in one slot of a cluster, and moves with the primary behind Sentinel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_a_cluster_and_behind_sentinel_are_counted() {
    let cluster = Cluster::start();
    drop(fleet(3, || RedisConfig::cluster(cluster.urls())).await);
    let mut guarded = Guarded::start();
    let urls = guarded.urls();
    let limiters = fleet(3, || RedisConfig::sentinel(urls.clone(), Guarded::NAME)).await;
    guarded.primary.kill();
    until("the replica is promoted", || guarded.replica.is_primary());
    assert_stays(&limiters, 3, Duration::from_secs(12)).await;
    assert!(!guarded.replica.keys().is_empty(), "they are counted by the new primary");
}

/// Another prefix is another fleet. Two limiters of one process decide apart from each other, so they are two instances;
/// clones are one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limiters_over_one_prefix_are_instances() {
    let server = Server::start();
    let others = fleet(2, || RedisConfig::url(server.url()).prefix("other")).await;
    let limiters = fleet(3, || RedisConfig::url(server.url())).await;
    let _clone = limiters[0].clone();
    assert_stays(&limiters, 3, Duration::from_secs(3)).await;
    assert_stays(&others, 2, Duration::ZERO).await;
}

/// Starts limiters with stores of their own, and waits until they know each other.
async fn fleet(count: u32, config: impl Fn() -> RedisConfig) -> Vec<Limiter> {
    let mut limiters = Vec::new();
    for _ in 0..count {
        let store = RedisStore::connect_with(config()).await.expect("a store");
        limiters.push(Limiter::with_resilience(store, Resilience::default()));
    }
    until_all_know(&limiters, count).await;
    limiters
}

/// Waits until the limiters know this number of instances.
async fn until_all_know(limiters: &[Limiter], count: u32) {
    let start = Instant::now();
    while limiters.iter().any(|limiter| limiter.status().instances != Some(count)) {
        let known: Vec<_> = limiters.iter().map(|limiter| limiter.status().instances).collect();
        assert!(start.elapsed() < PATIENCE, "{known:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// For some time, no limiter knows fewer instances.
async fn assert_stays(limiters: &[Limiter], count: u32, time: Duration) {
    let start = Instant::now();
    loop {
        for limiter in limiters {
            let known = limiter.status().instances;
            assert!(known >= Some(count), "{known:?} after {:?}", start.elapsed());
        }
        if start.elapsed() >= time {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
}
