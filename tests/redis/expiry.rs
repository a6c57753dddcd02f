//! How long the server keeps a key, by its own clock.

use std::{ops::RangeInclusive, time::Duration};

use tollgate::{
    Limiter,
    store::{RedisStore, Resilience},
};

use crate::{
    servers::{Server, patient},
    support::policy,
};

/// A key lives until all its units are back, and not much longer, also if it is charged all the time.
#[tokio::test]
async fn a_key_lives_as_long_as_what_it_has_spent() {
    let server = Server::start();
    let config = patient().plain_keys(true);
    let store = RedisStore::connect_with(&server.url(), config).await.expect("a store");
    let limiter = Limiter::with(store, Resilience::none());
    let each = [
        ("1000/2s", "l2", 4_000),
        ("1000/2s sliding-buckets(4)", "b2", 4_000),
        ("1000/2s sliding-counter", "c2", 2_000),
        ("1000/2s token-bucket(1000)", "t2", 2_000),
        ("1000/2s fixed-window", "f2", 2_000),
    ];
    for turn in 0..60 {
        for (quota, tag, spare) in each {
            let policy = policy("p", quota);
            let left = async || {
                let peek = limiter.peek(policy.charge("alice", 0)).await.expect("a decision");
                peek.outcomes().get(0).expect("an outcome").standing().reset_after().as_millis()
            };
            let _ = limiter.check(policy.charge("alice", 100)).await.expect("a decision");
            let before = left().await;
            let lives: i64 = server.ask(&format!("PTTL toll:{{=alice}}:p:{tag}"));
            let after = left().await;
            assert!(
                after == 0 || lives as i128 >= after as i128,
                "{quota}, {turn}: {lives} of {after} ms"
            );
            let most = before + spare;
            assert!(lives as i128 <= most as i128, "{quota}, {turn}: {lives} of {most} ms");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const EACH: [(&str, &str); 5] = [
    ("1000/2s", "l2"),
    ("1000/2s sliding-buckets(4)", "b2"),
    ("1000/2s sliding-counter", "c2"),
    ("1000/2s token-bucket(1000)", "t2"),
    ("1000/2s fixed-window", "f2"),
];

/// A blocked key lives as long as its block, or as its state if that is longer. When the block is
/// lifted, it lives as long as its state.
#[tokio::test]
async fn a_key_lives_as_long_as_its_block() {
    let server = Server::start();
    let config = patient().plain_keys(true);
    let store = RedisStore::connect_with(&server.url(), config).await.expect("a store");
    let limiter = Limiter::with(store, Resilience::none());
    let minute = Duration::from_secs(60);
    let is_in = |key: &str, tag: &str, range: RangeInclusive<i64>| {
        let lives: i64 = server.ask(&format!("PTTL toll:{{={key}}}:p:{tag}"));
        assert!(range.contains(&lives), "{key} {tag}: {lives} is not in {range:?}");
    };
    for (quota, tag) in EACH {
        let policy = policy("p", quota);
        let block = async |key: &'static str, duration| {
            limiter.block(policy.charge(key, 1), duration).await.expect("an answer");
        };
        let unblock = async |key: &'static str| {
            limiter.unblock(policy.charge(key, 1)).await.expect("an answer");
        };
        block("unspent", minute).await;
        is_in("unspent", tag, 58_000..=60_001);
        block("unspent", minute / 2).await;
        is_in("unspent", tag, 58_000..=60_001);
        block("unspent", 2 * minute).await;
        is_in("unspent", tag, 118_000..=120_001);
        unblock("unspent").await;
        is_in("unspent", tag, -2..=-2);

        // In a log with a ring.
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(limiter.check(policy.charge("spent", 10)).await.expect("one").is_allowed());
        }
        let state: i64 = server.ask(&format!("PTTL toll:{{=spent}}:p:{tag}"));
        block("spent", Duration::from_millis(1)).await;
        is_in("spent", tag, state - 1_000..=state + 2);
        block("spent", minute).await;
        is_in("spent", tag, 58_000..=60_001);
        // Behind the block the state is written anew, and later so that it lives longer.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let _ = limiter.penalize(policy.charge("spent", 700)).await.expect("an answer");
        is_in("spent", tag, 57_000..=60_001);
        unblock("spent").await;
        let left = limiter.peek(policy.charge("spent", 0)).await.expect("an answer");
        let reset = left.outcomes().get(0).expect("one").standing().reset_after().as_millis();
        is_in("spent", tag, reset as i64..=4_300);
        limiter.reset(policy.charge("spent", 0)).await.expect("an answer");
    }
    server.assert_all_keys_expire();
}
