//! How long the server keeps a key, by its own clock.

use std::time::Duration;

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
