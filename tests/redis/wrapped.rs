//! A store behind a wrapper outside of the crate behaves as the store does.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use plimsoll::{
    Limiter, RedisStore, Resilience,
    redis::RedisConfig,
    store::{BreakerStatus, Source, Store},
};
use plimsoll_testing::{
    Counted,
    calm::eventually,
    policy,
    servers::{PATIENCE, Server},
};

use crate::{
    nodes::{cluster, keys_of},
    patient,
};

/// While a node of a cluster is down, only its own breaker opens.
#[tokio::test]
async fn a_wrapped_cluster_has_a_breaker_for_each_node() {
    let mut cluster = cluster();
    let config = RedisConfig::cluster(cluster.urls()).with_settings(patient().plain_keys(true));
    let store = RedisStore::connect_with(config).await.expect("a store");
    let wrapped = Counted::new(store.clone());
    let policy = policy("p", "1000000/h token-bucket(1000000)");
    let nodes = [0, 1, 2].map(|node| policy.charge(keys_of(node)[0].clone(), 1));
    assert_eq!(
        nodes.each_ref().map(|it| wrapped.node(it)),
        nodes.each_ref().map(|it| store.node(it))
    );

    // A dead node refuses connections at once, and a late one is not dead.
    let limiter = Limiter::with_resilience(wrapped, Resilience::default().deadline(PATIENCE));
    cluster.nodes[2].kill();
    let opens = async || {
        let _ = limiter.check(nodes[2].clone()).await;
        limiter.status().open_breakers > 0
    };
    eventually("the breaker of the node opens", opens).await;
    let status = limiter.status();
    assert_eq!(status.open_breakers, 1, "{status:?}");
    assert!(matches!(status.breaker, Some(BreakerStatus::Open { .. })));
    for charge in &nodes[..2] {
        let decision = limiter.check(charge.clone()).await.expect("a decision");
        assert_eq!(decision.source(), Source::Shared, "{charge:?}");
    }
}

/// Leases need both: without the marks, refilled units of a bucket would come back.
#[tokio::test]
async fn a_wrapped_store_is_leased_as_it_is() {
    let server = Server::start();
    let config = RedisConfig::url(server.url()).with_settings(patient());
    let store = RedisStore::connect_with(config).await.expect("a store");
    let description = store.description();
    let wrapped = Counted::new(Arc::new(Counted::new(store)) as Arc<dyn Store>);
    assert!(wrapped.traits().counts_leases && wrapped.traits().marks_debts);
    assert_eq!(wrapped.description(), description);

    let requests = wrapped.requests();
    let limiter = Limiter::with_resilience(wrapped, Resilience::default().deadline(PATIENCE));
    let policy = policy("leased", "600000/10min token-bucket(600000) leased(30s)");
    let mut checks = 0;
    while limiter.status().leased_units < 20 {
        assert!(limiter.check(policy.charge("alice", 1)).await.expect("an answer").is_allowed());
        checks += 1;
        assert!(checks < 10_000, "no units are leased");
    }
    let before = requests.load(SeqCst);
    for _ in 0..10 {
        assert!(limiter.check(policy.charge("alice", 1)).await.expect("an answer").is_allowed());
    }
    let after = requests.load(SeqCst);
    assert!(after <= before + 1, "{after}, {before} before");
}
