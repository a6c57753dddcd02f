//! The log and the metrics while Redis fails: the cause of each failure, with the words of the
//! server, under the default settings.
#![cfg(all(feature = "tracing", feature = "metrics", feature = "redis-tls"))]

use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use plimsoll::{Limiter, OnFailure, Policy, RedisStore, Resilience, redis::RedisConfig};
use plimsoll_testing::{
    alone,
    calm::eventually,
    log::Log,
    servers::{Cluster, Server, free_port},
};
use tokio::time::sleep;

/// Takes the events so far, and returns those about failures of the store.
fn failures(log: &Log) -> Vec<String> {
    log.take().into_iter().filter(|it| it.contains("the store has failed")).collect()
}

/// Returns the number of errors of this kind that the metric has counted.
fn counted(snapshotter: &Snapshotter, kind: &str) -> u64 {
    let snapshot = snapshotter.snapshot().into_vec();
    let counter = snapshot.into_iter().find(|(key, ..)| {
        let key = key.key();
        key.name() == "plimsoll_store_errors_total"
            && key.labels().any(|label| label.key() == "kind" && label.value() == kind)
    });
    match counter {
        Some((.., DebugValue::Counter(count))) => count,
        _ => 0,
    }
}

/// Checks for `time`, once each 5 ms. Returns the number of checks.
async fn check_for(
    limiter: &Limiter,
    policy: &Policy,
    on_failure: OnFailure,
    time: Duration,
) -> u64 {
    let end = tokio::time::Instant::now() + time;
    let mut checks = 0;
    while tokio::time::Instant::now() < end {
        let charge = policy.charge(checks, 1).with_on_failure(on_failure);
        let _ = limiter.check(charge).await.map(drop);
        checks += 1;
        sleep(Duration::from_millis(5)).await;
    }
    checks
}

/// One test, because the process has one log of failures.
#[tokio::test(flavor = "multi_thread")]
async fn the_cause_of_each_failure_is_logged() {
    if !alone("store_failures::the_cause_of_each_failure_is_logged") {
        return;
    }
    let (log, recorder) = (Log::of(|target| target == "plimsoll"), DebuggingRecorder::new());
    let snapshotter = recorder.snapshotter();
    tracing::subscriber::set_global_default(log.clone()).expect("the first subscriber");
    recorder.install().expect("the first recorder");
    let policy = Policy::new("p", "1000/h").expect("valid");
    let second = Duration::from_secs(1);

    // The first event of a round reports failures of the round before.
    let (mut all_reported, mut all_errors) = (0, 0);

    // Redis refuses to write, and then is gone, under each setting of what a failure means.
    for on_failure in [OnFailure::Local, OnFailure::Allow, OnFailure::Deny] {
        let mut server = Server::start();
        server.ask::<()>("ACL SETUSER hidden on >hidden ~* &* +@all");
        let url = server.url();
        let with_user = url.replace("redis://", "redis://hidden:hidden@");
        let limiter = Limiter::new(RedisStore::connect(&with_user).await.expect("a store"));
        assert_eq!(failures(&log), Vec::<String>::new());
        server.ask::<()>("CONFIG SET maxmemory 1");
        check_for(&limiter, &policy, on_failure, 3 * second).await;
        let events = failures(&log);
        assert!((2..=4).contains(&events.len()), "one a second: {events:#?}");
        for event in &events {
            for part in [
                "WARN",
                "kind=\"out_of_memory\"",
                "place=\"server\"",
                "OOM command not allowed when used memory >",
                "raise maxmemory",
                "suppressed=",
            ] {
                assert!(event.contains(part), "{part} is not in: {event}");
            }
        }
        // Each event has the number of failures since the last event that were not reported.
        let count = |event: &String| -> u64 {
            let rest = event.split("suppressed=").nth(1).expect("a count");
            rest.split(' ').next().and_then(|it| it.parse().ok()).expect("a number")
        };
        let reported = events.iter().map(count).sum::<u64>() + events.len() as u64;
        let errors = counted(&snapshotter, "out_of_memory");
        all_reported += reported;
        all_errors += errors;
        assert!(reported > 5 && all_reported <= all_errors, "{all_reported} of {all_errors}");

        server.kill();
        check_for(&limiter, &policy, on_failure, 2 * second).await;
        let events = failures(&log);
        // The breaker is open, so these are its probes.
        assert!((1..=4).contains(&events.len()), "{events:#?}");
        let refused = |it: &String| it.contains("unavailable") && it.contains("check that it runs");
        assert!(events.iter().any(refused), "{events:#?}");
        let address = url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
        assert!(events.iter().all(|it| it.contains(&address)), "{address}: {events:#?}");
        assert!(events.iter().all(|it| !it.contains("hidden")), "{events:#?}");
        drop(limiter);
        // The events of the next round begin with a new second.
        sleep(second).await;
        failures(&log);
    }

    // Without a breaker, each check fails, and the log says how many.
    let mut server = Server::start();
    let store = RedisStore::connect(&server.url()).await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::default().without_breaker());
    server.kill();
    let (start, mut checks, mut events) = (tokio::time::Instant::now(), 0, Vec::new());
    while events.len() < 3 {
        checks += check_for(&limiter, &policy, OnFailure::Local, second).await;
        events.extend(failures(&log));
        assert!(start.elapsed() < 30 * second, "{checks} checks: {events:#?}");
    }
    // One a second, of each of two kinds.
    let most = 2 * (1 + start.elapsed().as_secs() as usize);
    assert!(events.len() <= most, "{checks} checks: {events:#?}");
    drop(limiter);
    sleep(second).await;

    // A lazy store tells why it is not ready, without a check.
    let url = format!("redis://127.0.0.1:{}/", free_port());
    failures(&log);
    let store = RedisStore::connect_with(RedisConfig::url(&url).lazy(true)).await.expect("a store");
    let mut events = Vec::new();
    eventually("a warning", async || {
        events.extend(failures(&log));
        !events.is_empty()
    })
    .await;
    assert!(events[0].contains("Connection refused"), "{events:#?}");
    drop(store);
    sleep(second).await;

    // In a cluster, an event names the node.
    let mut cluster = Cluster::start();
    let store =
        RedisStore::connect_with(RedisConfig::cluster(cluster.urls())).await.expect("a store");
    let limiter = Limiter::new(store);
    failures(&log);
    cluster.nodes[0].ask::<()>("CONFIG SET maxmemory 1");
    cluster.nodes[2].ask::<()>("CONFIG SET maxmemory 1");
    check_for(&limiter, &policy, OnFailure::Local, 2 * second).await;
    let events = failures(&log);
    let nodes = ["(slots from 0)", "(slots from 10923)"];
    assert!((1..=4).contains(&events.len()), "{events:#?}");
    let names_node = |it: &String| nodes.iter().any(|node| it.contains(node));
    assert!(events.iter().all(names_node), "{events:#?}");
    cluster.nodes[1].kill();
}
