//! The memory of the sketch of offenders. No other test may allocate meanwhile.

use std::time::Duration;

use peak_alloc::PeakAlloc;
use plimsoll::{Limiter, MemoryStore, Policy, clock::ManualClock, memory::MemoryConfig};
use plimsoll_control::{OffenderOrder, Offenders};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// A million keys are denied once or twice each, and three of them are denied most. In a flood, one in 64 denials
/// is counted, and otherwise all.
#[test]
fn the_memory_for_a_million_keys_is_that_for_a_few() {
    for time_per_denial in [Duration::ZERO, Duration::from_micros(300)] {
        deny_a_million_keys(time_per_denial);
    }
}

fn deny_a_million_keys(time_per_denial: Duration) {
    let clock = ManualClock::at(1_000_000_000);
    let config = MemoryConfig::default().max_keys(1_000).clock(clock.clone());
    let limiter = Limiter::new(MemoryStore::new(config));
    let offenders = Offenders::with_clock(100, clock.clone()).show_keys();
    let policy = Policy::new("api", "1/min").expect("a policy");
    // A cost over the limit is denied without a state of the key.
    let deny = |key: u64| {
        offenders.record(&limiter.check_now(policy.charge(key, 2)).expect("an embedded store"));
        clock.advance(time_per_denial);
    };
    (0..1_000).for_each(deny);
    let before = ALLOCATED.current_usage();
    for key in 0..1_000_000_u64 {
        deny(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63);
        if key % 20 == 0 {
            deny(key / 20 % 3);
        }
    }
    let grown = ALLOCATED.current_usage().saturating_sub(before);
    eprintln!("{grown} bytes more after a million keys, {} in use", ALLOCATED.current_usage());
    assert!(grown < 32_000, "{grown} bytes");
    let top = offenders.top("api", 3, OffenderOrder::Denied);
    let mut keys: Vec<_> = top.iter().map(|it| it.key.as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["0", "1", "2"], "{top:?}");
}
