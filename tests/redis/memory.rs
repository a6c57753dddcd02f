//! The figures that `docs/redis.md` states, against `MEMORY USAGE` of a real server.

use std::time::Duration;

use plimsoll::{Limiter, RedisStore, clock::ManualClock, redis::RedisConfig};
use plimsoll_testing::servers::Server;

use crate::{patient, policy};

/// Returns the row of an algorithm in the table of the page.
fn row(algorithm: &str) -> &'static str {
    let page = include_str!("../../docs/redis.md");
    let table = page.split("by `MEMORY USAGE`").nth(1).expect("the table");
    let link = format!("[`{algorithm}`]");
    let mut rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.find(|row| row.contains(&link)).expect("a row").rsplit('|').nth(1).expect("a cell")
}

/// Returns the pairs of bytes and requests in a cell such as "136 with 1 or 2; 1,620 with 100".
fn stated(cell: &str) -> Vec<(u64, u64)> {
    let numbers = |text: &str| -> Vec<u64> {
        let words = text.replace(',', "");
        words.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    let parts = cell.split("; ").map(|part| part.split_once(" with ").expect("a pair"));
    parts
        .flat_map(|(bytes, requests)| {
            let bytes = *numbers(bytes).last().expect("bytes");
            numbers(requests).into_iter().map(move |requests| (bytes, requests))
        })
        .collect()
}

struct Measured {
    server: Server,
    limiter: Limiter,
    clock: ManualClock,
}

impl Measured {
    async fn start() -> Self {
        let server = Server::start();
        let store =
            RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
                .await
                .expect("a store");
        let clock = ManualClock::at(1_700_000_000_000_000);
        let store = store.with_test_clock(clock.clone());
        let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
        Self { server, limiter, clock }
    }

    /// Returns the bytes of a key after this many requests, one each `step`.
    async fn bytes(&self, quota: &str, requests: u64, step: Duration) -> u64 {
        self.server.ask::<()>("FLUSHALL");
        let policy = policy("eightlet", quota);
        for _ in 0..requests {
            self.clock.advance(step);
            let decision = self.limiter.check(policy.charge("a", 1)).await.expect("an answer");
            assert!(decision.is_allowed());
        }
        let key = String::from_utf8(self.server.keys().pop().expect("a key")).expect("printable");
        self.server.ask(&format!("MEMORY USAGE {key}"))
    }
}

#[tokio::test]
async fn the_page_states_the_memory_of_counters() {
    let measured = Measured::start().await;
    for (algorithm, quota) in [
        ("TokenBucket", "1000/h token-bucket(100)"),
        ("SlidingCounter", "1000/h sliding-counter"),
        ("FixedWindow", "1000/h fixed-window"),
    ] {
        let bytes = measured.bytes(quota, 10, Duration::from_millis(1)).await;
        assert_eq!(row(algorithm).trim(), bytes.to_string(), "{algorithm}");
    }
}

#[tokio::test]
async fn the_page_states_the_memory_of_a_log() {
    let measured = Measured::start().await;
    let stated = stated(row("SlidingLog"));
    assert!(stated.len() >= 6, "{stated:?}");
    let mut found = Vec::new();
    for &(_, requests) in &stated {
        found.push((measured.bytes("10000/h", requests, Duration::from_millis(1)).await, requests));
    }
    assert_eq!(stated, found, "bytes, requests");
}

#[tokio::test]
async fn the_page_states_the_memory_of_buckets() {
    let measured = Measured::start().await;
    let stated = stated(row("SlidingBuckets"));
    assert!(stated.len() >= 4, "{stated:?}");
    let mut found = Vec::new();
    for &(_, buckets) in &stated {
        // Ten windows, in which each bucket is charged.
        let quota = format!("1000000/h sliding-buckets({buckets})");
        let step = Duration::from_secs(3_600) / buckets as u32;
        found.push((measured.bytes(&quota, buckets * 10, step).await, buckets));
    }
    assert_eq!(stated, found, "bytes, buckets");
}
