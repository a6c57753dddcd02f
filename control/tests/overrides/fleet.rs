//! Three processes whose clocks are an hour apart, while Redis goes and comes back without its data.

use std::{env, fs, time::Duration};

use plimsoll::{Limiter, RedisStore};
use plimsoll_control::OverrideKind;
use plimsoll_testing::{
    role::Role,
    servers::{Server, directory, run},
};
use tokio::time::{Instant, sleep};

use crate::{Instance, instance, new, quota, stored};

/// An instance, which prints each change of its limits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role: another test starts it"]
async fn worker() {
    let url = env::var("PLIMSOLL_TEST_URL").expect("a role");
    let Instance { policy, overrides, registry, .. } = instance(&url).await;
    let api = registry.get("api").expect("it is registered");
    let (start, mut last) = (Instant::now(), String::new());
    while start.elapsed() < Duration::from_secs(120) {
        let limit = |key| policy.charge(key, 1).quota().limit();
        let (all, key) = (limit(7), limit(42));
        let blocks = overrides.list().iter().filter(|it| it.kind == OverrideKind::Block).count();
        let state = format!("all {all}, key {key}, on {}, blocks {blocks}", api.is_enabled());
        if state != last {
            println!("\nstate {state}");
            last = state;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until all instances have these limits, and returns how long it took.
fn until_all(roles: &mut [Role], state: &str, start: Instant) -> Duration {
    for role in roles {
        while role.says("state ") != state {}
    }
    let took = start.elapsed();
    eprintln!("{state}: on all after {took:?}");
    // Each change is also measured: see the median at the end.
    assert!(took < Duration::from_secs(30), "{state}: {took:?}");
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_apply_and_end_overrides_and_keep_them_without_redis() {
    let mut server = Server::start();
    let clocks = directory();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/redis/clock.c");
    run(&clocks, "cc", &["-shared", "-fPIC", "-o", "clock.so", source]);
    let mut roles: Vec<_> = [0, 3_600_000_000_i64, -3_600_000_000]
        .into_iter()
        .map(|ahead| {
            let (url, file) = (server.url(), clocks.join(ahead.to_string()));
            fs::write(&file, ahead.to_string()).expect("written");
            let preload = clocks.join("clock.so");
            let environment = [
                ("PLIMSOLL_TEST_URL", url.as_str()),
                ("PLIMSOLL_TEST_CLOCK", file.to_str().expect("utf-8")),
                ("LD_PRELOAD", preload.to_str().expect("utf-8")),
            ];
            Role::start("fleet::worker", &environment)
        })
        .collect();
    until_all(&mut roles, "all 1, key 1, on true, blocks 0", Instant::now());
    let mut took = Vec::new();
    let Instance { overrides, limiter, policy, .. } = instance(&server.url()).await;
    let set = async |new| {
        let start = Instant::now();
        overrides.set(new, None).await.expect("an answer");
        start
    };

    let seconds = Duration::from_secs;
    let all_ends = Instant::now() + seconds(12);
    let start = set(new(None, quota("5/min"), Some(seconds(12)))).await;
    took.push(until_all(&mut roles, "all 5, key 5, on true, blocks 0", start));
    let key_ends = Instant::now() + seconds(8);
    set(new(Some(43), quota("3/min"), None)).await;
    let start = set(new(Some(42), quota("9/min"), Some(seconds(8)))).await;
    took.push(until_all(&mut roles, "all 5, key 9, on true, blocks 0", start));
    let start = set(new(Some(7), OverrideKind::Block, None)).await;
    took.push(until_all(&mut roles, "all 5, key 9, on true, blocks 1", start));
    assert!(!limiter.check(policy.charge(7, 1)).await.expect("an answer").is_allowed());
    // From now on, only the three processes know them.
    drop((overrides, limiter));

    server.kill();
    // Without Redis, everything stays in force but the overrides that end.
    until_all(&mut roles, "all 5, key 5, on true, blocks 1", key_ends);
    assert!(Instant::now() >= key_ends);
    until_all(&mut roles, "all 1, key 1, on true, blocks 1", all_ends);
    assert!(Instant::now() >= all_ends);
    // A Redis that has lost its data has no overrides, and the instances end them.
    server.run();
    until_all(&mut roles, "all 1, key 1, on true, blocks 0", Instant::now());
    assert!(stored(&server).await.is_empty());

    let limiter = Limiter::new(RedisStore::connect(&server.url()).await.expect("a store"));
    let Instance { overrides, .. } = instance(&server.url()).await;
    let start = Instant::now();
    overrides.set(new(Some(7), OverrideKind::Block, None), None).await.expect("set");
    took.push(until_all(&mut roles, "all 1, key 1, on true, blocks 1", start));
    assert!(!limiter.peek(policy.charge(7, 1)).await.expect("an answer").is_allowed());
    let start = Instant::now();
    overrides.set(new(None, OverrideKind::Off, Some(seconds(3))), None).await.expect("set");
    took.push(until_all(&mut roles, "all 1, key 1, on false, blocks 1", start));
    until_all(&mut roles, "all 1, key 1, on true, blocks 1", start + Duration::from_secs(3));
    overrides.remove("api", Some("7"), None, "dora", "done").await.expect("removed");
    took.push(until_all(&mut roles, "all 1, key 1, on true, blocks 0", Instant::now()));
    assert!(limiter.check(policy.charge(7, 1)).await.expect("an answer").is_allowed());
    for limit in 11..20 {
        let start = Instant::now();
        overrides.set(new(None, quota(&format!("{limit}/min")), None), None).await.expect("set");
        let state = format!("all {limit}, key {limit}, on true, blocks 0");
        took.push(until_all(&mut roles, &state, start));
    }
    server.assert_all_keys_expire();
    took.sort();
    let median = took[took.len() / 2];
    eprintln!("{} changes, the median {median:?}, the slowest {:?}", took.len(), took.last());
    assert!(median < Duration::from_millis(1_500), "{took:?}");
    drop(fs::remove_dir_all(clocks));
}
