//! Bytes a key in the embedded store: as the allocator counts them, and as the store says.

mod support;

use std::{fmt::Write, num::NonZeroU32, time::Duration};

use governor::{DefaultKeyedRateLimiter, RateLimiter};
use peak_alloc::PeakAlloc;
use plimsoll::{
    Algorithm, Limiter, MemoryStore, Policy, Quota, clock::ManualClock, memory::MemoryConfig,
};
use support::{Bar, Comparison, figure, heading, ready, row};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Bytes at the end, the most there were, and what the store says of itself.
#[derive(Debug, Clone, Copy)]
struct Bytes {
    held: usize,
    peak: usize,
    stated: usize,
}

const KEYS: [usize; 3] = [600_000, 800_000, 1_000_000];
const REQUESTS: [u64; 4] = [10, 100, 1_000, 10_000];
/// The requests in all logs together. There are so many logs that the store's own memory does not count.
const LOGGED: usize = 10_000_000;
/// The limit of the logs that are not full.
const LIMIT: u64 = 10_000;

fn main() {
    if !support::measuring() {
        return;
    }
    heading("Memory a key of 24 bytes, mean over 0.6, 0.8 and 1.0 million keys, bytes");
    let theirs = governor();
    let is_log =
        |it: &Algorithm| matches!(it, Algorithm::SlidingLog | Algorithm::SlidingBuckets(_));
    for algorithm in Algorithm::EACH.iter().filter(|it| !is_log(it)) {
        counters(Quota::per_hour(100).with_algorithm(*algorithm).unwrap(), theirs);
    }
    heading("Memory of logs with ten million requests, 1 request of a key a microsecond, bytes");
    for requests in REQUESTS {
        log(&format!("full sliding-log of {requests}"), requests, requests);
    }
    for requests in REQUESTS.into_iter().filter(|requests| *requests < LIMIT) {
        log(&format!("sliding-log of {requests} of {LIMIT}"), requests, LIMIT);
    }
}

fn counters(quota: Quota, theirs: f64) {
    let runs = KEYS.map(|count| (count, spend(quota, count, 1)));
    let name = quota.algorithm().name();
    let mean = |bytes: fn(&Bytes) -> usize| {
        let each = runs.iter().map(|(count, run)| bytes(run) as f64 / *count as f64);
        each.sum::<f64>() / runs.len() as f64
    };
    let held = mean(|run| run.held);
    let ratio = held / theirs;
    let comparison = Comparison { ours: held, theirs, ratio, quartiles: (ratio, ratio) };
    row(&format!("{name}, governor beside it"), "B/key", comparison, Bar::AtMost(1.0));
    figure(&format!("{name}, by the allocator"), "B/key", held, Bar::AtMost(70.0));
    figure(&format!("{name}, peak while growing"), "B/key", mean(|run| run.peak), Bar::Open);
    figure(&format!("{name}, by the store"), "B/key", mean(|run| run.stated), Bar::AtMost(70.0));
}

fn log(what: &str, requests: u64, limit: u64) {
    let logs = LOGGED / requests as usize;
    let run = spend(Quota::per_hour(limit), logs, requests);
    let each = |bytes: usize| bytes as f64 / logs as f64;
    let bar = Bar::AtMost(110.0 + 10.0 * requests as f64);
    figure(&format!("{what}, by the allocator"), "B/key", each(run.held), bar);
    figure(&format!("{what}, by the store"), "B/key", each(run.stated), bar);
    let a_request = each(run.held) / requests as f64;
    let bar = if requests >= 1_000 { Bar::AtMost(12.0) } else { Bar::Open };
    figure(&format!("{what}, a request"), "B/req", a_request, bar);
}

/// Charges each of `count` new keys `requests` times.
fn spend(quota: Quota, count: usize, requests: u64) -> Bytes {
    let policy = Policy::new("bench", quota).unwrap();
    let clock = ManualClock::at(1_700_000_000_000_000);
    let mut key = String::with_capacity(24);
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let config = MemoryConfig::default().max_keys(2 * count).max_bytes(4 << 30);
    let limiter = Limiter::new(MemoryStore::new(config.clock(clock.clone())));
    for _ in 0..requests {
        for number in 0..count {
            name(&mut key, number);
            assert!(ready(limiter.check(policy.charge(&key, 1))).unwrap().is_allowed());
        }
        clock.advance(Duration::from_micros(1));
    }
    let stats = limiter.status().memory.expect("a memory store");
    assert_eq!((stats.keys, stats.evicted), (count, 0));
    Bytes {
        held: ALLOCATOR.current_usage() - before,
        peak: ALLOCATOR.peak_usage() - before,
        stated: stats.bytes,
    }
}

/// Returns the bytes a key in governor, which keeps the key itself and one integer.
fn governor() -> f64 {
    let mean = KEYS.map(|count| {
        let before = ALLOCATOR.current_usage();
        let limiter: DefaultKeyedRateLimiter<String> =
            RateLimiter::keyed(governor::Quota::per_hour(NonZeroU32::new(100).unwrap()));
        for number in 0..count {
            let mut key = String::with_capacity(24);
            name(&mut key, number);
            limiter.check_key(&key).unwrap();
        }
        (ALLOCATOR.current_usage() - before) as f64 / count as f64
    });
    mean.iter().sum::<f64>() / mean.len() as f64
}

fn name(key: &mut String, number: usize) {
    key.clear();
    write!(key, "account-{number:016x}").unwrap();
}
