//! A cluster of which one node is dead, frozen or replaced: the others go on deciding, and the keys
//! of the dead node do not wait for it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use plimsoll::{
    Decision, Limiter, OnFailure, RedisStore, Resilience,
    redis::RedisConfig,
    store::{BreakerStatus, Source},
};
use plimsoll_testing::{
    calm::{eventually, on_a_calm_machine},
    servers::{Cluster, Server, until},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{policy, recovery::Frozen, topology::keyslot};

/// The longest wait of a check whose node is known to be dead.
const MAX_WAIT: Duration = Duration::from_millis(5);
/// The number of keys of each node.
const KEYS: usize = 50;

/// A check.
#[derive(Debug, Clone, Copy)]
struct Sample {
    start: Instant,
    node: usize,
    wait: Duration,
    /// Redis has decided.
    is_shared: bool,
}

/// A steady flow of checks, one every 2 ms, for keys of each node in turn.
struct Meter {
    limiter: Limiter,
    samples: Arc<Mutex<Vec<Sample>>>,
    task: JoinHandle<()>,
}

impl Meter {
    async fn start(cluster: &Cluster, charges_per_check: usize) -> Self {
        let config = RedisConfig::default().plain_keys(true);
        let store =
            RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(config))
                .await
                .expect("a store");
        let limiter = Limiter::new(store);
        let (policy, samples) = (policy("p", "1000000/h token-bucket(1000000)"), Arc::default());
        let task = tokio::spawn({
            let (limiter, samples) = (limiter.clone(), Arc::clone(&samples));
            async move {
                let keys: Vec<_> = (0..3).map(keys_of).collect();
                for number in 0.. {
                    let node = number % 3;
                    let keys: Vec<_> = (0..charges_per_check)
                        .map(|other| keys[(node + other) % 3][number / 3 % KEYS].clone())
                        .collect();
                    let (limiter, policy) = (limiter.clone(), policy.clone());
                    let samples: Arc<Mutex<Vec<Sample>>> = Arc::clone(&samples);
                    tokio::spawn(async move {
                        let start = Instant::now();
                        let charges = keys.iter().map(|key| policy.charge(key.as_str(), 1));
                        let decision =
                            limiter.check(charges.collect::<plimsoll::policy::Charges<'_>>());
                        let source = decision.await.expect("a decision").source();
                        let (wait, is_shared) = (start.elapsed(), source == Source::Shared);
                        samples.lock().expect("whole").push(Sample {
                            start,
                            node,
                            wait,
                            is_shared,
                        });
                    });
                    sleep(Duration::from_millis(2)).await;
                }
            }
        });
        Self { limiter, samples, task }
    }

    /// Returns the checks that began at `since` or later, and that `matches` selects.
    fn since(&self, since: Instant, matches: impl Fn(&Sample) -> bool) -> Vec<Sample> {
        let samples = self.samples.lock().expect("whole");
        samples.iter().copied().filter(|it| it.start >= since && matches(it)).collect()
    }

    /// Waits until Redis has decided the last 34 checks of a node, which take about 200 ms. Returns the time from
    /// `since` to the first of them.
    ///
    /// # Errors
    ///
    /// Returns an error if it takes 30 s: on a busy machine, checks reach their deadline again and again.
    async fn until_shared(&self, node: usize, since: Instant) -> Result<Duration, String> {
        while since.elapsed() < Duration::from_secs(30) {
            sleep(Duration::from_millis(20)).await;
            let samples = self.since(since, |it| it.node == node);
            if let Some(last) = samples.last_chunk::<34>()
                && last.iter().all(|it| it.is_shared)
            {
                return Ok(last[0].start - since);
            }
        }
        Err("it is not shared again".to_owned())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Prints figures of these checks, and returns the 99th percentile of their waits.
///
/// # Errors
///
/// Returns an error if there were too few checks, because the machine was busy.
fn report(what: &str, samples: &[Sample]) -> Result<Duration, String> {
    if samples.len() <= 50 {
        return Err(format!("{what}: {} checks", samples.len()));
    }
    let mut waits: Vec<_> = samples.iter().map(|it| it.wait).collect();
    waits.sort_unstable();
    let at = |percent: usize| waits[(waits.len() - 1) * percent / 100];
    let long = waits.iter().filter(|wait| **wait > MAX_WAIT).count();
    eprintln!(
        "measured: {what}: {} checks, {:.1}% shared, p50 {:?}, p99 {:?}, most {:?}, {:.2}% over 5 ms",
        waits.len(),
        100.0 * samples.iter().filter(|it| it.is_shared).count() as f64 / waits.len() as f64,
        at(50),
        at(99),
        at(100),
        100.0 * long as f64 / waits.len() as f64,
    );
    Ok(at(99))
}

/// Returns keys whose slots a node has.
pub(crate) fn keys_of(node: usize) -> Vec<String> {
    let keys = (0..).map(|number| format!("k{number}"));
    keys.filter(|key| keyslot(&format!("={key}")) / 5_462 == node).take(KEYS).collect()
}

/// A cluster whose nodes go on when one is missing.
pub(crate) fn cluster() -> Cluster {
    Cluster::start_with(&["--cluster-require-full-coverage", "no"])
}

/// Checks the waits while the third node is gone: from a second after `gone` on, no check waits for
/// it, and the others are shared.
async fn is_cheap(meter: &Meter, what: &str, gone: Instant) -> Result<(), String> {
    sleep(Duration::from_secs(4)).await;
    report(&format!("{what}, its keys, first second"), &{
        let end = gone + Duration::from_secs(1);
        meter.since(gone, |it| it.node == 2 && it.start < end)
    })?;
    let later = gone + Duration::from_secs(1);
    let dead = meter.since(later, |it| it.node == 2);
    let live = meter.since(later, |it| it.node != 2);
    let p99 = report(&format!("{what}, its keys"), &dead)?;
    report(&format!("{what}, other keys"), &live)?;
    assert!(dead.iter().all(|it| !it.is_shared), "the node is gone");
    let shared = live.iter().filter(|it| it.is_shared).count();
    if p99 > MAX_WAIT || shared * 100 < live.len() * 99 {
        return Err(format!("p99 {p99:?}, {shared} of {} others are shared", live.len()));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_costs_its_keys_no_wait() {
    on_a_calm_machine(async || {
        let mut cluster = cluster();
        let meter = Meter::start(&cluster, 1).await;
        sleep(Duration::from_millis(500)).await;
        report("three nodes", &meter.since(Instant::now() - Duration::from_millis(400), |_| true))?;
        cluster.nodes[2].kill();
        is_cheap(&meter, "a dead node", Instant::now()).await?;
        let status = meter.limiter.status();
        one_is_open(&meter)?;
        assert!(matches!(status.breaker, Some(BreakerStatus::Open { .. })));

        cluster.nodes[2].run();
        // A node takes no requests for two seconds after it has started.
        until("the node is up", || {
            cluster.nodes[2].ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
        });
        comes_back(&meter, "a node that restarted").await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_node_costs_its_keys_no_wait() {
    on_a_calm_machine(async || {
        let cluster = cluster();
        let meter = Meter::start(&cluster, 1).await;
        sleep(Duration::from_millis(500)).await;
        let frozen = Frozen::freeze(&[&cluster.nodes[2]]);
        is_cheap(&meter, "a frozen node", Instant::now()).await?;
        drop(frozen);
        comes_back(&meter, "a node that was frozen").await
    })
    .await;
}

/// Returns an error unless the breaker of one node is open. Others may open on a busy machine.
fn one_is_open(meter: &Meter) -> Result<(), String> {
    let status = meter.limiter.status();
    if status.open_breakers == 1 { Ok(()) } else { Err(format!("{status:?}")) }
}

async fn comes_back(meter: &Meter, what: &str) -> Result<(), String> {
    let wait = meter.until_shared(2, Instant::now()).await?;
    eprintln!("measured: {what} is shared after {wait:?}");
    let start = Instant::now();
    let closed = async || meter.limiter.status().open_breakers == 0;
    eventually("all breakers are closed", closed).await;
    let (closed, most) = (start.elapsed(), Duration::from_secs(2));
    match wait.max(closed) < most {
        true => Ok(()),
        false => Err(format!("{what} is shared after {wait:?}, breakers closed after {closed:?}")),
    }
}

/// Every check depends on two nodes. The dead node is blamed, so checks of the other two are shared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_over_two_nodes_blame_the_dead_one() {
    on_a_calm_machine(async || {
        let cluster = cluster();
        let meter = Meter::start(&cluster, 2).await;
        sleep(Duration::from_millis(500)).await;
        let _frozen = Frozen::freeze(&[&cluster.nodes[2]]);
        let later = Instant::now() + Duration::from_secs(1);
        sleep(Duration::from_secs(4)).await;
        // The checks of node 0 also charge a key of node 1.
        let live = meter.since(later, |it| it.node == 0);
        let dead = meter.since(later, |it| it.node != 0);
        let p99 = report("two nodes, one of them frozen", &dead)?;
        report("two other nodes", &live)?;
        let shared = live.iter().filter(|it| it.is_shared).count();
        if p99 > MAX_WAIT || shared * 100 < live.len() * 99 {
            return Err(format!("p99 {p99:?}, {shared} of {} others are shared", live.len()));
        }
        one_is_open(&meter)
    })
    .await;
}

/// A store over a cluster without replicas fails at once if the node refuses connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_connection_is_an_answer() {
    on_a_calm_machine(async || {
        let mut cluster = cluster();
        let config = RedisConfig::default().plain_keys(true);
        let store =
            RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(config))
                .await
                .expect("a store");
        let limiter = Limiter::with_resilience(store, Resilience::none());
        let policy = policy("p", "10000/h");
        let keys = keys_of(2);
        for key in &keys {
            let _ = limiter.check(policy.charge(key.as_str(), 1)).await.expect("an answer");
        }
        cluster.nodes[2].kill();
        let mut waits = Vec::new();
        for key in keys.iter().cycle().take(200) {
            let start = Instant::now();
            let error = limiter.check(policy.charge(key.as_str(), 1)).await.expect_err("refused");
            if !waits.is_empty() {
                assert_eq!(error.effect(), plimsoll::error::Effect::None, "{error:?}");
            }
            waits.push(start.elapsed());
            sleep(Duration::from_millis(5)).await;
        }
        waits.sort_unstable();
        eprintln!("measured: refused after {:?} (p50), {:?} at most", waits[100], waits[199]);
        match waits[197] < MAX_WAIT {
            true => Ok(()),
            false => Err(format!("refused after {:?}", waits[197])),
        }
    })
    .await;
}

/// Tasks that check a few keys of the first node as fast as they can.
struct Hammer {
    limiter: Limiter,
    tasks: Vec<JoinHandle<Counts>>,
    stop: Arc<std::sync::atomic::AtomicBool>,
}

#[derive(Debug, Default)]
struct Counts {
    checks: u64,
    admitted: u64,
    fell_back: u64,
    errors: u64,
    worst: Duration,
}

const HAMMERED_KEYS: usize = 4;
const LIMIT: u64 = 2_000;

impl Hammer {
    async fn start(cluster: &Cluster, resilience: Resilience) -> Self {
        let config = RedisConfig::default().plain_keys(true);
        let store =
            RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(config))
                .await
                .expect("a store");
        let limiter = Limiter::with_resilience(store, resilience.without_deny_cache());
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let policy = policy("p", &format!("{LIMIT}/h"));
        let tasks = (0..8_usize).map(|task| {
            let (limiter, policy, stop) = (limiter.clone(), policy.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let key = &keys_of(0)[task % HAMMERED_KEYS];
                let mut counts = Counts::default();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let start = Instant::now();
                    let charge = policy.charge(key.as_str(), 1).with_on_failure(OnFailure::Local);
                    match limiter.check(charge).await {
                        Ok(decision) => {
                            counts.admitted += u64::from(matches!(decision, Decision::Allowed(_)));
                            counts.fell_back += u64::from(decision.source() != Source::Shared);
                        }
                        Err(_) => counts.errors += 1,
                    }
                    counts.checks += 1;
                    counts.worst = counts.worst.max(start.elapsed());
                    sleep(Duration::from_millis(1)).await;
                }
                counts
            })
        });
        let tasks = tasks.collect();
        Self { limiter, tasks, stop }
    }

    async fn stop(self, what: &str) -> Counts {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut all = Counts::default();
        for task in self.tasks {
            let counts = task.await.expect("no panic");
            all.checks += counts.checks;
            all.admitted += counts.admitted;
            all.fell_back += counts.fell_back;
            all.errors += counts.errors;
            all.worst = all.worst.max(counts.worst);
        }
        drop(self.limiter);
        let limit = LIMIT * HAMMERED_KEYS as u64;
        eprintln!("measured: {what}: {all:?}, the limits are {limit} in all");
        all
    }
}

/// Promotes the replica of the first node under load, and returns what the checks saw until two
/// seconds after it.
async fn promote(resilience: Resilience, is_planned: bool, what: &str) -> Counts {
    let arguments = ["--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000"];
    let mut cluster = Cluster::start_with(&arguments);
    let replica = cluster.replica_of(0, &arguments, 4);
    let _others = [1, 2].map(|node| cluster.replica_of(node, &arguments, 4 + node));
    let hammer = Hammer::start(&cluster, resilience).await;
    sleep(Duration::from_millis(500)).await;
    match is_planned {
        true => replica.ask::<()>("CLUSTER FAILOVER"),
        false => cluster.nodes[0].kill(),
    }
    until("the replica is promoted", || replica.is_primary());
    sleep(Duration::from_secs(3)).await;
    hammer.stop(what).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_under_load() {
    on_a_calm_machine(async || {
        let counts = promote(Resilience::default(), true, "a planned failover").await;
        assert_eq!(counts.errors, 0);
        let limit = LIMIT * HAMMERED_KEYS as u64;
        assert!(counts.admitted <= 2 * limit, "{counts:?}");
        match counts.worst < Duration::from_millis(80) {
            true => Ok(()),
            false => Err(format!("{counts:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_killed_under_load() {
    on_a_calm_machine(async || {
        let counts = promote(Resilience::default(), false, "a primary killed").await;
        assert_eq!(counts.errors, 0);
        // The limit, the share of the fallback, and what the replica had not received.
        let limit = LIMIT * HAMMERED_KEYS as u64;
        assert!(counts.admitted <= 3 * limit, "{counts:?}");
        let bare = promote(Resilience::none(), false, "a primary killed, no resilience").await;
        assert!(bare.admitted <= 2 * limit, "{bare:?}");
        match counts.worst < Duration::from_millis(80) && bare.worst < Duration::from_millis(200) {
            true => Ok(()),
            false => Err(format!("{counts:?}, without resilience {bare:?}")),
        }
    })
    .await;
}

/// A server that answers, but cannot write, is not tried again with requests of callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_notices_a_server_that_cannot_write() {
    for (what, breaks, heals) in [
        ("full", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("read-only", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ] {
        let server = Server::start();
        let limiter = Limiter::new(RedisStore::connect(&server.url()).await.expect("a store"));
        let policy = policy("p", "1000000/h token-bucket(1000000)");
        let source = async |number: u64| {
            limiter.check(policy.charge(number, 1)).await.expect("a decision").source()
        };
        eventually("Redis decides", async || source(0).await == Source::Shared).await;
        server.ask::<()>(breaks);
        for number in 0..20 {
            assert_eq!(source(number).await, Source::Fallback, "{what}");
        }
        let calls = || {
            let stats: String = server.ask("INFO commandstats");
            let calls = stats.split("cmdstat_evalsha:calls=").nth(1).expect("some");
            calls.split(',').next().expect("a number").parse::<u64>().expect("a number")
        };
        let (before, start) = (calls(), Instant::now());
        let mut number = 0;
        // For 3 s, and on a slow machine until there were some probes.
        while start.elapsed() < Duration::from_secs(3) || calls() - before < 2 {
            assert!(start.elapsed() < Duration::from_secs(30), "{what}: no probe");
            number += 1;
            assert_eq!(source(number).await, Source::Fallback, "{what}");
            sleep(Duration::from_millis(1)).await;
        }
        let (calls, took) = (calls() - before, start.elapsed());
        eprintln!("measured: {what}: {number} checks in {took:.1?}, {calls} calls of the server");
        let most = 2 + 2 * took.as_secs();
        assert!(calls <= most, "{what}: a call for each probe, not {calls} in {took:?}");
        server.ask::<()>(heals);
        let healed = Instant::now();
        while source(number).await != Source::Shared {
            assert!(healed.elapsed() < Duration::from_secs(60), "{what}");
            sleep(Duration::from_millis(5)).await;
        }
        eprintln!("measured: {what}: shared {:?} after it can write again", healed.elapsed());
    }
}
