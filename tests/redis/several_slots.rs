//! Checks over several slots of a cluster: all or nothing, whatever becomes of them on the way.

use std::time::Duration;

use plimsoll::{Limiter, Policy, RedisStore, Resilience, redis::RedisConfig, store::Source};
use plimsoll_testing::{
    calm::eventually,
    servers::{Cluster, PATIENCE},
};
use tokio::{runtime::Handle, time::Instant};

use crate::{patient, policy, recovery::Frozen};

async fn remaining(limiter: &Limiter, policy: &Policy, key: &str) -> u64 {
    let decision = limiter.peek(policy.charge(key, 0)).await.expect("an answer");
    decision.outcomes().next().expect("an outcome").standing().remaining
}

/// The slots of a check are asked in sequence. A check that is dropped between two of them
/// is still denied as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_is_given_up_spends_no_part() {
    let cluster = Cluster::start();
    let store =
        RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(patient()))
            .await
            .expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let (wide, narrow) = (policy("wide", "1000/h"), policy("narrow", "1/h"));
    let (mut number, mut given_up) = (0, 0);
    // On a busy machine, fewer checks are given up while they run.
    while number < 40 || (given_up <= 20 && number < 400) {
        number += 1;
        let (user, team) = (format!("user-{number}"), format!("team-{number}"));
        let spent = limiter.check(narrow.charge(team.as_str(), 1)).await.expect("an answer");
        assert!(spent.is_allowed());
        for micros in [50, 100, 150, 200, 300, 400, 600] {
            let charges = [wide.charge(user.as_str(), 1), narrow.charge(team.as_str(), 1)];
            let check = limiter.check(charges);
            match tokio::time::timeout(Duration::from_micros(micros), check).await {
                Ok(decision) => assert!(!decision.expect("an answer").is_allowed()),
                Err(_) => given_up += 1,
            }
        }
        let end = Instant::now() + Duration::from_secs(20);
        while remaining(&limiter, &wide, &user).await < 1000 {
            assert!(Instant::now() < end, "a part of a denied check stays charged");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(given_up > 20, "only {given_up} checks were given up");
}

/// A check is brought to its end also when its store is given up, and then nothing is left of either.
#[tokio::test]
async fn a_check_outlives_its_store_until_its_call_ends() {
    /// Longer than a busy machine stands still.
    const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);
    let cluster = Cluster::start();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let config = RedisConfig::default().response_timeout(RESPONSE_TIMEOUT);
    let config = RedisConfig::cluster(cluster.urls()).with_settings(config);
    let store = RedisStore::connect_with(config).await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let policy = policy("p", "100/h");
    let charges = || [1_u64, 2, 3, 4, 5, 6].map(|key| policy.charge(key, 1));
    assert!(limiter.check(charges()).await.expect("an answer").is_allowed());
    let _frozen = Frozen::freeze(&cluster.nodes.iter().collect::<Vec<_>>());
    let check = limiter.check(charges());
    assert!(tokio::time::timeout(Duration::from_millis(20), check).await.is_err());
    drop(limiter);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(tasks() > before, "it goes on");
    // At its response timeout.
    eventually("it has ended", async || tasks() == before).await;
}

/// A check that one node has denied stays denied if another node cannot report its standings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_outlives_another_node() {
    let mut cluster = Cluster::start();
    let config = patient().plain_keys(true);
    let store =
        RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(config))
            .await
            .expect("a store");
    // A late server must not bring in the fallback.
    let resilience = Resilience::default().deadline(PATIENCE).without_deny_cache();
    let limiter = Limiter::with_resilience(store, resilience);
    let (narrow, wide) = (policy("narrow", "1/h"), policy("wide", "100/h"));
    let mut on_node = [None, None, None];
    for number in 0..100 {
        let key = format!("key-{number}");
        let slot: usize =
            cluster.nodes[0].ask::<u64>(&format!("CLUSTER KEYSLOT {{={key}}}")) as usize;
        on_node[slot * 3 / 16_384] = Some(key);
    }
    let [Some(first), _, Some(last)] = on_node else { panic!("a node has none of 100 keys") };
    let spent = limiter.check(narrow.charge(first.as_str(), 1)).await.expect("an answer");
    assert!(spent.is_allowed());
    let both = || limiter.check([narrow.charge(first.as_str(), 1), wide.charge(last.as_str(), 1)]);
    for alive in [true, false] {
        if !alive {
            cluster.nodes[2].kill();
        }
        let decision = both().await.expect("an answer");
        assert!(!decision.is_allowed());
        assert_eq!(decision.source(), Source::Shared);
        assert_eq!(decision.outcomes().nth(1).expect("an outcome").granted(), 0);
    }
}

/// The reply of a refund has the standing of its key, so a denied check does not ask for it once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_check_asks_each_slot_once_and_refunds_once() {
    let cluster = Cluster::start();
    let config = patient().plain_keys(true);
    let config = RedisConfig::cluster(cluster.urls()).with_settings(config);
    let store = RedisStore::connect_with(config).await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let (wide, narrow) = (policy("wide", "100/h"), policy("narrow", "1/h"));
    let mut keys: Vec<_> = ["a", "b", "c", "d"].map(String::from).into();
    let slot =
        |key: &String| cluster.nodes[0].ask::<u64>(&format!("CLUSTER KEYSLOT {{={key}}}")) as usize;
    keys.sort_by_key(slot);
    let calls = || {
        let of_node = |stats: String| {
            let scripts = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
            let calls = |line: &str| line.split(['=', ',']).nth(1)?.parse::<u64>().ok();
            scripts.filter_map(calls).sum::<u64>()
        };
        cluster.nodes.iter().map(|node| of_node(node.ask("INFO commandstats"))).sum::<u64>()
    };
    for denied in 0..keys.len() {
        let spent =
            limiter.check(narrow.charge(keys[denied].as_str(), 1)).await.expect("an answer");
        assert!(spent.is_allowed());
        let charge = |(at, key): (usize, &String)| match at == denied {
            true => narrow.charge(key.as_str(), 1),
            false => wide.charge(key.as_str(), 3),
        };
        let charges: Vec<_> = keys.iter().enumerate().map(charge).collect();
        let before = calls();
        let decision = limiter.check(charges).await.expect("an answer");
        let taken = calls() - before;
        assert!(!decision.is_allowed());
        for outcome in decision.outcomes().filter(|it| it.charge().policy() == &wide) {
            assert_eq!(outcome.standing().remaining, 100, "{outcome:?}");
            assert_eq!(outcome.standing().reset_after, Duration::ZERO, "{outcome:?}");
            assert_eq!(outcome.granted(), 0, "{outcome:?}");
        }
        // Each slot up to the denial, the refunds of those before it, and the standings of those behind it.
        assert_eq!(taken as usize, keys.len() + denied, "the slot {denied} has denied");
    }
}
