//! Two threads on one limiter and one policy, beside two threads that share nothing.

mod support;

use std::{hint::black_box, mem, sync::Barrier, thread, time::Duration};

use plimsoll::{Algorithm, Limiter, MemoryStore, Policy, Quota, memory::MemoryConfig};
use support::{
    Bar, Comparison, compare_rounds, heading,
    keys::{Walk, keys},
    measuring, ready, row, time,
};

const THREADS: usize = 2;
const BUCKET: Algorithm = Algorithm::TokenBucket { burst: 1_000_000_000 };
const ROUNDS: usize = 61;
/// Calls of each thread in a round.
const CALLS: u64 = 200_000;

fn main() {
    if !measuring() {
        return;
    }
    heading(
        "2 threads on distinct keys: one limiter and policy, beside one each, million checks/s",
    );
    // Each key is charged more often than its units come back, so it stays.
    let lasting = Quota::per_second(100).with_algorithm(BUCKET).unwrap();
    // The short window keeps the logs short.
    let log = Quota::new(1_000_000_000, Duration::from_millis(10), Algorithm::SlidingLog).unwrap();
    // A unit comes back at once. Then the key has expired, and the next new key of its shard replaces
    // it: both threads add keys all the time.
    let expiring = log.with_algorithm(BUCKET).unwrap();
    for (what, quota, count) in [
        ("token-bucket, 1 key each", lasting, 1),
        ("token-bucket, 10k keys each", lasting, 10_000),
        ("token-bucket, 10k keys each that expire at once", expiring, 10_000),
        ("sliding-log, 1 key each", log, 1),
        ("sliding-log, 10k keys each", log, 10_000),
    ] {
        row(what, "M/s", compare_with_control(quota, count), Bar::AtLeast(0.85));
    }
}

fn compare_with_control(quota: Quota, count: usize) -> Comparison {
    let all = keys(THREADS * count);
    let shared = Side::new(quota);
    let separate = [Side::new(quota), Side::new(quota)];
    let halves: Vec<&[String]> = all.chunks(count).collect();
    let ours = || throughput([(&shared, halves[0]), (&shared, halves[1])]);
    let control = || throughput([(&separate[0], halves[0]), (&separate[1], halves[1])]);
    // Every key is known before it counts.
    ours();
    control();
    let comparison = compare_rounds(ROUNDS, ours, control);
    // The next row must not work in the memory of this one: freed entries are scattered, and the side
    // that ran first would get them all.
    mem::forget((shared, separate));
    comparison
}

/// One side of a comparison, as a thread runs it.
struct Side {
    limiter: Limiter,
    policy: Policy,
}

impl Side {
    fn new(quota: Quota) -> Self {
        let config = MemoryConfig::default().max_bytes(1 << 30);
        Self {
            limiter: Limiter::new(MemoryStore::new(config)),
            policy: Policy::new("bench", quota).unwrap(),
        }
    }
}

/// Million checks a second of all threads together.
fn throughput(work: [(&Side, &[String]); THREADS]) -> f64 {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        let threads = work.map(|(Side { limiter, policy }, keys)| {
            let barrier = &barrier;
            scope.spawn(move || {
                let mut walk = Walk::new(keys);
                barrier.wait();
                time(CALLS, &mut || {
                    let charge = policy.charge(black_box(walk.step()), 1);
                    drop(black_box(ready(limiter.check(charge))));
                })
            })
        });
        threads.map(|thread| 1e3 / thread.join().unwrap()).iter().sum()
    })
}
