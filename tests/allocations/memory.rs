//! The bytes of a key that `docs/guide/algorithms.md` states, against a counting allocator.

use std::{alloc::System, time::Duration};

use plimsoll::{
    Algorithm, Limiter, MemoryStore, Policy, Quota, clock::ManualClock, memory::MemoryConfig,
};
use plimsoll_testing::{algorithms::with_parameters, alone, now};
use stats_alloc::Region;

use crate::ALLOCATOR;

const KEYS: u64 = 10_000;
/// The numbers of requests in the head of the table.
const REQUESTS: [u64; 3] = [1, 10, 40];

/// Returns the figures of an algorithm in the table of the page.
fn stated(algorithm: Algorithm) -> Vec<i64> {
    let name = format!("{algorithm:?}");
    let name = name.split([' ', '(']).next().expect("a name");
    let page = include_str!("../../docs/guide/algorithms.md");
    let head = "| bytes of a key after | 1 request | 10 | 40 |";
    let table = page.split(head).nth(1).expect("the table");
    let mut rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let row = rows.find(|row| row.contains(&format!("`{name}"))).expect("a row");
    row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect()
}

/// One key for each of [`KEYS`], under `quota`.
struct Measured {
    limiter: Limiter,
    clock: ManualClock,
    region: Region<'static, System>,
    /// The bytes of the empty store.
    empty: usize,
}

impl Measured {
    fn new() -> Self {
        let clock = ManualClock::at(1_700_000_000_000_000);
        let config = MemoryConfig::default().max_keys(2 * KEYS as usize).hash_seed(1);
        let limiter = Limiter::new(MemoryStore::new(config.clock(clock.clone())));
        let empty = stated_by(&limiter);
        Self { limiter, clock, region: Region::new(ALLOCATOR), empty }
    }

    /// Charges each key once, a second after the last time.
    fn request(&self, quota: Quota) {
        let policy = Policy::new("policy", quota).expect("a policy");
        self.clock.advance(Duration::from_secs(1));
        for key in 0..KEYS {
            let decision = now(self.limiter.check(policy.charge(key, 1))).expect("an answer");
            assert!(decision.is_allowed());
        }
    }

    /// Returns the mean bytes of a key, by the allocator and by the store.
    fn bytes(&self) -> (f64, f64) {
        let change = self.region.change();
        let held = change.bytes_allocated - change.bytes_deallocated;
        let stated = stated_by(&self.limiter) - self.empty;
        (held as f64 / KEYS as f64, stated as f64 / KEYS as f64)
    }
}

fn stated_by(limiter: &Limiter) -> usize {
    limiter.status().memory.expect("a memory store").bytes
}

#[test]
fn the_page_states_the_bytes_of_a_key() {
    if !alone("memory::the_page_states_the_bytes_of_a_key") {
        return;
    }
    for algorithm in Algorithm::EACH {
        let algorithm = with_parameters(*algorithm, 60, 100);
        let quota = Quota::per_minute(100).with_algorithm(algorithm).expect("a quota");
        let (measured, mut requests) = (Measured::new(), 0);
        let found = REQUESTS.map(|wanted| {
            while requests < wanted {
                measured.request(quota);
                requests += 1;
            }
            let (held, stated) = measured.bytes();
            assert!((held - stated).abs() < 1.0, "{algorithm}: {held}, by the store {stated}");
            held.round() as i64
        });
        println!("{algorithm}: {found:?}");
        assert_eq!(stated(algorithm), found, "{algorithm}, {REQUESTS:?} requests");
    }
    let measured = Measured::new();
    measured.request(Quota::per_minute(100));
    let allocations = measured.region.change().allocations;
    measured.request(Quota::per_minute(100));
    let more = measured.region.change().allocations - allocations;
    // Each check is in a box.
    let records = more - KEYS as usize;
    assert!(records < 100, "{records} allocations for the second record of {KEYS} logs");
}

/// A shard with more than 24 keys keeps their tags on the heap.
#[test]
fn a_crowded_store_states_its_bytes() {
    if !alone("memory::a_crowded_store_states_its_bytes") {
        return;
    }
    let policy = Policy::new("policy", "100/min fixed-window").expect("a policy");
    // All keys are in one shard.
    let limiter = Limiter::new(MemoryStore::new(MemoryConfig::default().max_keys(31)));
    let add = |key: u64| {
        let decision = now(limiter.check(policy.charge(key, 1))).expect("an answer");
        assert!(decision.is_allowed());
    };
    add(0);
    let (region, before) = (Region::new(ALLOCATOR), stated_by(&limiter));
    for key in 1..31 {
        add(key);
        let change = region.change();
        let held = change.bytes_allocated - change.bytes_deallocated;
        assert_eq!(held, stated_by(&limiter) - before, "{key} more keys");
    }
}
