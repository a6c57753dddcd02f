//! A cluster whose slots move and whose nodes come and go, and a primary that Sentinel replaces.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use futures_util::future::join_all;
use plimsoll::{Decision, Key, Limiter, Policy, RedisStore, redis::RedisConfig};
use plimsoll_testing::{
    calm::eventually,
    servers::{Cluster, Guarded, Server, free_port, until},
};
use tokio::time::Instant;

use crate::{
    assert_works,
    faults::{Load, assert_healed},
    patient, policy,
};

#[tokio::test]
async fn a_cluster_works() {
    let cluster = Cluster::start();
    let store = RedisStore::connect_with(
        RedisConfig::cluster(cluster.urls()[..1].to_vec()).with_settings(patient()),
    )
    .await
    .expect("a store");
    assert_works(store.clone()).await;
    // Charges of different keys: all or nothing across slots, by refunds.
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let (wide, narrow) = (policy("wide", "10/h"), policy("narrow", "2/h"));
    for (number, expected) in [(0, true), (1, true), (2, false), (3, false)] {
        for other in 0..8_u64 {
            let key = format!("user-{other}");
            let charges = [wide.charge(key.as_str(), 1), narrow.charge(format!("team-{other}"), 1)];
            let decision = limiter.check(charges).await.expect("an answer");
            assert_eq!(decision.is_allowed(), expected, "{number} {other}");
            assert_eq!(decision.outcomes().len(), 2);
            let spent = decision.outcomes().next().expect("an outcome").standing().remaining;
            assert_eq!(spent, 10 - (number + 1).min(2), "the spent units were refunded");
        }
    }
    // With a tag they share a slot, so it is one call.
    for node in &cluster.nodes {
        node.ask::<()>("CONFIG RESETSTAT");
    }
    let tagged = |key: &str| Key::from(key).tagged("tenant");
    let charges = [wide.charge(tagged("a"), 1), narrow.charge(tagged("b"), 1)];
    assert!(limiter.check(charges).await.expect("an answer").is_allowed());
    let calls: Vec<String> =
        cluster.nodes.iter().map(|node| node.ask("INFO commandstats")).collect();
    let calls: usize =
        calls.iter().filter(|stats| stats.contains("cmdstat_evalsha:calls=1,")).count();
    assert_eq!(calls, 1);
    cluster.nodes.iter().for_each(Server::assert_all_keys_expire);
}

/// Moves the slot of every key of this policy from node to node, as a resharding does.
fn reshard(cluster: &Cluster, slot: u64, from: usize, to: usize) {
    let id = |index: usize| cluster.nodes[index].ask::<String>("CLUSTER MYID");
    let (source, target) = (id(from), id(to));
    cluster.nodes[to].ask::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
    cluster.nodes[from].ask::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
    std::thread::sleep(Duration::from_millis(20));
    let keys: Vec<String> = cluster.nodes[from].ask(&format!("CLUSTER GETKEYSINSLOT {slot} 100"));
    for key in keys {
        let port = cluster.nodes[to].port;
        cluster.nodes[from].ask::<()>(&format!("MIGRATE 127.0.0.1 {port} {key} 0 30000"));
    }
    std::thread::sleep(Duration::from_millis(20));
    for index in [to, from, 3 - to - from] {
        cluster.nodes[index].ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {target}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load() {
    let cluster = Cluster::start();
    let config = patient().plain_keys(true);
    let store =
        RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(config))
            .await
            .expect("a store");
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let policy = policy("p", "100000/h fixed-window");
    let slot: u64 = cluster.nodes[0].ask("CLUSTER KEYSLOT plim:{=alice}:p:f1");
    let mut load = Load::start(&limiter, &policy, "alice");
    let mut owner = (slot / 5_462) as usize;
    for _ in 0..12 {
        let to = (owner + 1) % 3;
        reshard(&cluster, slot, owner, to);
        owner = to;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    load.stop().await;
    load.report("a slot that moved 12 times");
    assert_eq!(load.errors.load(SeqCst), 0);
    // Nothing lost, nothing doubled.
    let peek = limiter.peek(policy.charge("alice", 0)).await.expect("an answer");
    let Decision::Allowed(peek) = peek else { panic!("0 units") };
    let spent = 100_000 - peek.remaining().expect("a charge");
    assert_eq!(spent, load.admitted.load(SeqCst));
    assert_healed(&limiter).await;
}

/// A node that has been taken out of its cluster, and still runs, knows of no slots.
#[tokio::test]
async fn a_node_without_slots_does_not_define_the_topology() {
    let cluster = Cluster::start();
    let outside = Server::start_with(&["--cluster-enabled", "yes"]);
    let nodes = [outside.url(), cluster.nodes[0].url()];
    assert_works(
        RedisStore::connect_with(RedisConfig::cluster(nodes).with_settings(patient()))
            .await
            .expect("a store"),
    )
    .await;
    let error = RedisStore::connect_with(RedisConfig::cluster([outside.url()]))
        .await
        .expect_err("there are no slots");
    assert!(error.is_unavailable(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_were_taken_out_are_forgotten() {
    let mut cluster = Cluster::start();
    let new = || Server::start_with(&["--cluster-enabled", "yes"]);
    let extras: Vec<_> = (0..3).map(|_| new()).collect();
    for extra in &extras {
        extra.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {}", cluster.nodes[0].port));
    }
    let all = || cluster.nodes.iter().chain(&extras);
    until("six nodes", || {
        all().all(|node| node.ask::<String>("CLUSTER INFO").contains("cluster_known_nodes:6"))
    });
    // A slot for each of the new nodes, and a request that goes there.
    let give = |slot: usize, to: &Server| {
        let id: String = to.ask("CLUSTER MYID");
        for node in all() {
            // A node without slots has become a replica, and does not accept the command.
            until("it has the slot", || {
                node.info("replication", "role") == "slave"
                    || node.try_ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {id}")).is_ok()
            });
        }
    };
    let slots = [16_383, 16_382, 16_381];
    for (slot, extra) in slots.iter().zip(&extras) {
        give(*slot, extra);
    }
    until("the cluster is whole", || {
        all().all(|node| node.ask::<String>("CLUSTER INFO").contains("cluster_state:ok"))
    });
    let config = patient().plain_keys(true);
    let store =
        RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(config))
            .await
            .expect("a store");
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let policy = policy("p", "1000/h");
    for (slot, extra) in slots.iter().zip(&extras) {
        let mut keys = (0..).map(|number| format!("k{number}"));
        let key = keys.find(|key| keyslot(&format!("={key}")) == *slot).expect("some key");
        let _ = limiter.check(policy.charge(key, 1)).await.expect("an answer");
        assert_eq!(extra.keys().len(), 1, "it went to the new node");
        extra.ask::<()>("FLUSHALL");
    }
    slots.iter().for_each(|slot| give(*slot, &cluster.nodes[2]));
    for extra in &extras {
        let id: String = extra.ask("CLUSTER MYID");
        for node in &cluster.nodes {
            let _ = node.try_ask::<()>(&format!("CLUSTER FORGET {id}"));
        }
        extra.ask::<()>("CLUSTER RESET SOFT");
    }
    // The slots are asked for again when a node is gone.
    cluster.nodes[0].kill();
    for key in 0..10_u64 {
        let _ = limiter.check(policy.charge(key, 1)).await.map(drop);
    }
    cluster.nodes[0].run();
    until("the cluster is up", || {
        let up = |node: &Server| node.ask::<String>("CLUSTER INFO").contains("cluster_state:ok");
        cluster.nodes.iter().all(up)
    });
    eventually("the store has found the nodes", async || {
        let checks = (0..60_u64).map(|key| limiter.check(policy.charge(key, 1)));
        join_all(checks).await.iter().all(Result::is_ok)
    })
    .await;
    let forgotten = |extra: &Server| extra.info("clients", "connected_clients") == "1";
    until("the store has closed its connections", || extras.iter().all(forgotten));
}

pub(crate) fn keyslot(tag: &str) -> usize {
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    usize::from(crc % 16_384)
}

/// Nodes that do not know their address leave it out. The address of the replying node then applies.
#[tokio::test]
async fn nodes_that_leave_out_their_address() {
    let endpoint = ["--cluster-preferred-endpoint-type", "unknown-endpoint"];
    let start = || Server::start_with(&["--cluster-enabled", "yes", endpoint[0], endpoint[1]]);
    let mut nodes = [start(), start()];
    nodes[0].ask::<()>("CLUSTER ADDSLOTSRANGE 0 8191");
    nodes[1].ask::<()>("CLUSTER ADDSLOTSRANGE 8192 16383");
    nodes[1].ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port));
    let up = |nodes: &[Server]| {
        let info = |node: &Server| node.ask::<String>("CLUSTER INFO");
        nodes
            .iter()
            .map(info)
            .all(|info| info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2"))
    };
    until("the cluster is up", || up(&nodes));
    let config = patient().plain_keys(true);
    let store =
        RedisStore::connect_with(RedisConfig::cluster([nodes[0].url()]).with_settings(config))
            .await
            .expect("a store");
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let policy = policy("p", "1000/h");
    let ask_all = async || {
        for key in 0..40_u64 {
            let _ = limiter.check(policy.charge(key, 1)).await.expect("an answer");
        }
    };
    ask_all().await;
    // A redirection leaves it out, too.
    let id: String = nodes[1].ask("CLUSTER MYID");
    let key = (0..).map(|number| format!("k{number}"));
    let key = { key }.find(|key| keyslot(&format!("={key}")) < 8_192).expect("some key");
    let slot = keyslot(&format!("={key}"));
    for node in nodes.iter().rev() {
        node.ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {id}"));
    }
    let _ = limiter.check(policy.charge(key, 1)).await.expect("it was redirected");
    ask_all().await;
    nodes[0].kill();
    let _ = limiter.check(policy.charge("alice", 1)).await.map(drop);
    nodes[0].run();
    until("the cluster is up again", || up(&nodes));
    eventually("the store has found the nodes", async || {
        let checks = (0..40_u64).map(|key| limiter.check(policy.charge(key, 1)));
        join_all(checks).await.iter().all(Result::is_ok)
    })
    .await;
    ask_all().await;
}

/// While a node is gone, the client asks the other nodes for the slots once per interval, and not for
/// each request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_asked_for_the_slots_in_an_interval() {
    let mut cluster = Cluster::start();
    let config = RedisConfig::default().plain_keys(true).batching(false);
    let store =
        RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(config))
            .await
            .expect("a store");
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let policy = policy("p", "100000/h fixed-window");
    let mut load = Load::start(&limiter, &policy, "alice");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let owner = keyslot("=alice") / 5_462;
    cluster.nodes[owner].kill();
    let others = [1, 2].map(|next| &cluster.nodes[(owner + next) % 3]);
    others.iter().for_each(|node| node.ask("CONFIG RESETSTAT"));
    let start = Instant::now();
    let calls_of = |node: &Server| -> u128 {
        let stats: String = node.ask("INFO commandstats");
        let calls = stats.split("cmdstat_cluster|slots:calls=").nth(1);
        let calls = calls.and_then(|rest| rest.split(',').next()).unwrap_or("0");
        calls.parse().expect("a number")
    };
    let calls = || others.iter().map(|node| calls_of(node)).sum::<u128>();
    // A second, and on a slow machine until they were asked a few times.
    let is_over = async || start.elapsed() >= Duration::from_secs(1) && calls() >= 4;
    eventually("the nodes are asked", is_over).await;
    let (calls, took) = (calls(), start.elapsed());
    load.stop().await;
    load.report("a node gone");
    eprintln!("a node gone for {took:.1?}: the two others were asked {calls} times");
    assert!(calls <= 40 * took.as_millis() / 1_000, "{calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_promotes_a_replica_under_load() {
    let mut guarded = Guarded::start();
    let unused = format!("redis://127.0.0.1:{}/", free_port());
    let sentinels = [unused, guarded.sentinel.url()];
    let unknown =
        RedisStore::connect_with(RedisConfig::sentinel(sentinels.clone(), "unknown")).await;
    assert!(unknown.is_err());
    let store = RedisStore::connect_with(RedisConfig::sentinel(sentinels, Guarded::NAME))
        .await
        .expect("a store");
    assert_works(store.clone()).await;
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let policy: Policy = policy("p", "500/h");
    let mut load = Load::start(&limiter, &policy, "alice");
    tokio::time::sleep(Duration::from_millis(300)).await;
    guarded.primary.kill();
    until("the replica is promoted", || guarded.replica.is_primary());
    let promoted = Instant::now();
    let mut before = load.errors.load(SeqCst);
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let errors = load.errors.load(SeqCst);
        if errors == before {
            break;
        }
        before = errors;
        assert!(promoted.elapsed() < Duration::from_secs(30), "service did not resume");
    }
    eprintln!("service resumed {:?} after the promotion", promoted.elapsed());
    load.stop().await;
    load.report("a primary killed under load");
    // Units that the replica had not received before the primary died may be admitted again.
    assert!(load.admitted.load(SeqCst) <= 1_000);
    assert_healed(&limiter).await;
    guarded.replica.assert_all_keys_expire();
}
