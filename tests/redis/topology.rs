//! Servers that come, go and hand over: a cluster whose slots move, a primary that Sentinel
//! replaces.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use tollgate::{
    Decision, Key, Limiter, Policy,
    store::{RedisConfig, RedisStore},
};

use crate::{
    assert_works,
    faults::{Load, assert_healed},
    policy,
    servers::{Cluster, Guarded, Server, free_port},
};

#[tokio::test]
async fn a_cluster_works() {
    let cluster = Cluster::start();
    let store = RedisStore::cluster(cluster.urls()[..1].to_vec()).await.expect("a store");
    assert_works(store.clone()).await;
    // Charges of different keys: all or nothing across slots, by refunds.
    let limiter = Limiter::with(store, tollgate::store::Resilience::none());
    let (wide, narrow) = (policy("wide", "10/h"), policy("narrow", "2/h"));
    for (number, expected) in [(0, true), (1, true), (2, false), (3, false)] {
        for other in 0..8_u64 {
            let key = format!("user-{other}");
            let charges = [wide.charge(key.as_str(), 1), narrow.charge(format!("team-{other}"), 1)];
            let decision = limiter.check(charges).await.expect("an answer");
            assert_eq!(decision.is_allowed(), expected, "{number} {other}");
            assert_eq!(decision.outcomes().len(), 2);
            let spent = decision.outcomes().get(0).expect("an outcome").standing().remaining();
            assert_eq!(spent, 10 - (number + 1).min(2), "what was spent was given back");
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
        cluster.nodes[from].ask::<()>(&format!("MIGRATE 127.0.0.1 {port} {key} 0 1000"));
    }
    std::thread::sleep(Duration::from_millis(20));
    for index in [to, from, 3 - to - from] {
        cluster.nodes[index].ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {target}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load() {
    let cluster = Cluster::start();
    let config = RedisConfig::default().plain_keys();
    let store = RedisStore::cluster_with(cluster.urls(), config).await.expect("a store");
    let limiter = Limiter::with(store, tollgate::store::Resilience::none());
    let policy = policy("p", "100000/h fixed-window");
    let slot: u64 = cluster.nodes[0].ask("CLUSTER KEYSLOT toll:{=alice}:p:f1");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_promotes_a_replica_under_load() {
    let mut guarded = Guarded::start();
    let nobody = format!("redis://127.0.0.1:{}/", free_port());
    let sentinels = [nobody, guarded.sentinel.url()];
    let unknown = RedisStore::sentinel(sentinels.clone(), "unknown").await;
    assert!(unknown.is_err());
    let store = RedisStore::sentinel(sentinels, Guarded::NAME).await.expect("a store");
    assert_works(store.clone()).await;
    let limiter = Limiter::with(store, tollgate::store::Resilience::none());
    let policy: Policy = policy("p", "500/h");
    let mut load = Load::start(&limiter, &policy, "alice");
    tokio::time::sleep(Duration::from_millis(300)).await;
    guarded.primary.kill();
    guarded.replica.until_promoted();
    let promoted = tokio::time::Instant::now();
    let mut before = load.errors.load(SeqCst);
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let errors = load.errors.load(SeqCst);
        if errors == before {
            break;
        }
        before = errors;
        assert!(promoted.elapsed() < Duration::from_secs(10), "service did not resume");
    }
    eprintln!("service resumed {:?} after the promotion", promoted.elapsed());
    load.stop().await;
    load.report("a primary killed under load");
    // What the replica had not received before the primary died may be admitted again.
    assert!(load.admitted.load(SeqCst) <= 1_000);
    assert_healed(&limiter).await;
    guarded.replica.assert_all_keys_expire();
}
