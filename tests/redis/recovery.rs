//! After a fault has passed, a limiter with the default deadline soon decides through Redis again.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use plimsoll::{Limiter, Policy, RedisStore, Resilience, redis::RedisConfig, store::Source};
use plimsoll_testing::{
    calm::{eventually, on_a_calm_machine},
    proxy::Proxy,
    servers::{Cluster, Guarded, Server, until},
};
use tokio::time::{Instant, sleep, timeout};

use crate::policy;

const MAX_RECOVERY: Duration = Duration::from_secs(2);

/// A steady flow of requests.
struct Traffic {
    policy: Policy,
    limiter: Limiter,
    stop: Arc<AtomicBool>,
    shared: Arc<AtomicU64>,
    other: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Traffic {
    fn start(store: RedisStore) -> Self {
        let (limiter, policy) = (Limiter::new(store), policy("p", "100/h"));
        let [shared, other] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn({
            let (limiter, policy, stop) = (limiter.clone(), policy.clone(), Arc::clone(&stop));
            let (shared, other) = (Arc::clone(&shared), Arc::clone(&other));
            async move {
                for key in 0_u64.. {
                    if stop.load(SeqCst) {
                        return;
                    }
                    let (limiter, policy) = (limiter.clone(), policy.clone());
                    let (shared, other) = (Arc::clone(&shared), Arc::clone(&other));
                    tokio::spawn(async move {
                        let decision = limiter.check(policy.charge(key, 1)).await;
                        let by_redis = decision.expect("a decision").source() == Source::Shared;
                        if by_redis { &shared } else { &other }.fetch_add(1, SeqCst);
                    });
                    sleep(Duration::from_millis(2)).await;
                }
            }
        });
        Self { policy, limiter, stop, shared, other, task }
    }

    /// Returns an error unless Redis decides all requests again soon, for half a second without an
    /// exception. The traffic ends with it.
    async fn recovers(self, what: &str, since: Instant) -> Result<(), String> {
        let mut steady = Instant::now();
        let mut before = self.other.load(SeqCst);
        let first = self.shared.load(SeqCst);
        let mut resumed = None;
        while steady.elapsed() < Duration::from_millis(500) {
            sleep(Duration::from_millis(5)).await;
            if resumed.is_none() && self.shared.load(SeqCst) > first {
                resumed = Some(since.elapsed());
            }
            let other = self.other.load(SeqCst);
            if other != before {
                (steady, before) = (Instant::now(), other);
            }
            assert!(since.elapsed() < Duration::from_secs(30), "{what}: not after {resumed:?}");
        }
        let all = steady - since;
        eprintln!("measured: {what}: again after {resumed:?}, all after {all:?}");
        self.stop().await;
        // The breaker lets all of them through a second after it has seen the first succeed.
        if resumed.is_some_and(|resumed| resumed < MAX_RECOVERY)
            && all < MAX_RECOVERY + Duration::from_secs(1)
        {
            Ok(())
        } else {
            Err(format!("{what}: again after {resumed:?}, all after {all:?}"))
        }
    }

    async fn stop(self) {
        self.stop.store(true, SeqCst);
        self.task.await.expect("no panic");
        drop((self.limiter, self.policy));
    }
}

fn signal(server: &str, signal: &str) {
    assert!(Command::new("kill").args([signal, server]).status().expect("kill runs").success());
}

fn process(server: &Server) -> String {
    server.info("server", "process_id")
}

/// Stopped processes. They continue when this is dropped, so that they can be ended.
pub(crate) struct Frozen(Vec<String>);

impl Frozen {
    pub(crate) fn freeze(servers: &[&Server]) -> Self {
        let processes: Vec<_> = servers.iter().map(|server| process(server)).collect();
        processes.iter().for_each(|process| signal(process, "-STOP"));
        Self(processes)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.iter().for_each(|process| signal(process, "-CONT"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_takes_longer_than_the_deadline() {
    on_a_calm_machine(async || {
        let server = Server::start();
        let (proxy, url) = Proxy::start(server.port).await;
        proxy.handshake.store(80, SeqCst);
        let traffic = Traffic::start(RedisStore::connect(&url).await.expect("a store"));
        sleep(Duration::from_millis(200)).await;
        proxy.cut();
        traffic.recovers("connections cut, handshakes of 80 ms", Instant::now()).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_froze_along_with_the_first_sentinel() {
    on_a_calm_machine(async || {
        let guarded = Guarded::by(3);
        let store = RedisStore::connect_with(RedisConfig::sentinel(guarded.urls(), Guarded::NAME))
            .await
            .expect("a store");
        let traffic = Traffic::start(store);
        sleep(Duration::from_millis(300)).await;
        let _frozen = Frozen::freeze(&[&guarded.primary, &guarded.sentinel]);
        until("the replica is promoted", || guarded.replica.is_primary());
        traffic.recovers("primary and first sentinel frozen", Instant::now()).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_died() {
    on_a_calm_machine(async || {
        let mut guarded = Guarded::by(1);
        let store = RedisStore::connect_with(RedisConfig::sentinel(guarded.urls(), Guarded::NAME))
            .await
            .expect("a store");
        let traffic = Traffic::start(store);
        sleep(Duration::from_millis(300)).await;
        guarded.primary.kill();
        until("the replica is promoted", || guarded.replica.is_primary());
        traffic.recovers("primary killed", Instant::now()).await
    })
    .await;
}

/// The replica of the first node of a cluster.
fn replica(cluster: &Cluster) -> Server {
    let replica = Server::start_with(&["--cluster-enabled", "yes"]);
    replica.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {}", cluster.nodes[0].port));
    until("four nodes", || replica.ask::<String>("CLUSTER INFO").contains("cluster_known_nodes:4"));
    let id: String = cluster.nodes[0].ask("CLUSTER MYID");
    until("it knows the node", || {
        replica.try_ask::<()>(&format!("CLUSTER REPLICATE {id}")).is_ok()
    });
    until("it follows", || replica.info("replication", "master_link_status") == "up");
    replica
}

fn take_over(cluster: &Cluster, replica: &Server) {
    replica.ask::<()>("CLUSTER FAILOVER TAKEOVER");
    until("the others know", || {
        cluster.nodes[1..].iter().all(|node| {
            let nodes: String = node.ask("CLUSTER NODES");
            let mut lines = nodes.lines();
            lines.any(|line| {
                line.contains(&format!(":{}@", replica.port)) && line.contains("0-5460")
            })
        })
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_that_froze() {
    on_a_calm_machine(async || {
        let cluster = Cluster::start();
        let replica = replica(&cluster);
        let traffic = Traffic::start(
            RedisStore::connect_with(RedisConfig::cluster(cluster.urls())).await.expect("a store"),
        );
        sleep(Duration::from_millis(300)).await;
        let _frozen = Frozen::freeze(&[&cluster.nodes[0]]);
        take_over(&cluster, &replica);
        traffic.recovers("a node of three frozen", Instant::now()).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_that_died() {
    on_a_calm_machine(async || {
        let mut cluster = Cluster::start();
        let replica = replica(&cluster);
        let traffic = Traffic::start(
            RedisStore::connect_with(RedisConfig::cluster(cluster.urls())).await.expect("a store"),
        );
        sleep(Duration::from_millis(300)).await;
        cluster.nodes[0].kill();
        take_over(&cluster, &replica);
        traffic.recovers("a node of three killed", Instant::now()).await
    })
    .await;
}

/// A request that was given up early does not replace the connection; nor does a short pause of the
/// server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reply_does_not_replace_the_connection() {
    let server = Server::start();
    let (proxy, url) = Proxy::start(server.port).await;
    let store = RedisStore::connect(&url).await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let policy = policy("p", "100/h");
    let opened = proxy.opened.load(SeqCst);
    proxy.answer.store(60, SeqCst);
    let mut given_up = 0;
    for key in 0_u64.. {
        let check = limiter.check(policy.charge(key, 1));
        // A late process may find the reply before it gives up.
        given_up += u32::from(timeout(Duration::from_millis(45), check).await.is_err());
        if given_up == 20 {
            break;
        }
        assert!(key < 1_000, "{given_up} checks were given up");
    }
    proxy.answer.store(0, SeqCst);
    sleep(Duration::from_millis(700)).await;
    let _ = limiter.check(policy.charge("alice", 1)).await.expect("an answer");
    assert_eq!(proxy.opened.load(SeqCst), opened);

    on_a_calm_machine(async || {
        let traffic = Traffic::start(RedisStore::connect(&url).await.expect("a store"));
        sleep(Duration::from_millis(200)).await;
        let opened = proxy.opened.load(SeqCst);
        let frozen = Frozen::freeze(&[&server]);
        sleep(Duration::from_millis(150)).await;
        drop(frozen);
        traffic.recovers("a pause of 150 ms", Instant::now()).await?;
        match proxy.opened.load(SeqCst) - opened {
            0 => Ok(()),
            new => Err(format!("a pause of 150 ms: {new} new connections")),
        }
    })
    .await;
}

/// The background tasks of a store end when it is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outlives_its_store() {
    let server = Server::start();
    let (proxy, url) = Proxy::start(server.port).await;
    let config = RedisConfig::default().connect_timeout(Duration::from_secs(600));
    let store = RedisStore::connect_with(RedisConfig::url(&url).with_settings(config))
        .await
        .expect("a store");
    let limiter = Limiter::new(store);
    let policy = policy("p", "100/h");
    proxy.mute.store(true, SeqCst);
    proxy.cut();
    sleep(Duration::from_millis(50)).await;
    for key in 0..4_u64 {
        let _ = limiter.check(policy.charge(key, 1)).await.expect("a decision");
    }
    eventually("it is connecting", async || proxy.open.load(Relaxed) == 2).await;
    drop(limiter);
    // Long before a connection times out.
    eventually("it has stopped", async || proxy.open.load(Relaxed) == 0).await;
}

/// A request that waits for a connection until its deadline is not charged in Redis. Its fallback
/// charge is replayed later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_that_was_never_sent_is_replayed() {
    on_a_calm_machine(async || {
        let server = Server::start();
        let (proxy, url) = Proxy::start(server.port).await;
        let limiter = Limiter::new(RedisStore::connect(&url).await.expect("a store"));
        let direct = RedisStore::connect(&server.url()).await.expect("a store");
        let direct = Limiter::with_resilience(direct, Resilience::none());
        let policy = policy("p", "100/h");
        let left = async || {
            let decision = direct.peek(policy.charge("alice", 0)).await.expect("an answer");
            decision.outcomes().next().expect("an outcome").standing().remaining
        };
        let source = async |cost| {
            let decision = limiter.check(policy.charge("alice", cost)).await.expect("a decision");
            assert!(decision.is_allowed());
            decision.source()
        };
        assert_eq!(left().await, 100);
        eventually("Redis decides", async || source(0).await == Source::Shared).await;
        proxy.handshake.store(400, SeqCst);
        proxy.cut();
        sleep(Duration::from_millis(20)).await;
        // On a busy machine, the connection may be back before this.
        for cost in [1, 2, 4] {
            if source(cost).await != Source::Fallback {
                return Err("a charge was sent after the handshake".to_owned());
            }
        }
        if left().await != 100 {
            return Err("a charge was sent or replayed within the handshake".to_owned());
        }
        let end = Instant::now() + MAX_RECOVERY;
        while left().await != 100 - 7 {
            if Instant::now() >= end {
                return Err(format!("{} of 93 are left", left().await));
            }
            sleep(Duration::from_millis(20)).await;
            source(0).await;
        }
        Ok(())
    })
    .await;
}
