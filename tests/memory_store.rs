//! The embedded store keeps to its keys and bytes, and nobody gains by filling it.

mod support;

use std::time::Duration;

use support::{Watched, micros, most_in_any_window, now, policy};
use tollgate::{
    Algorithm, Charges, Decision, Limiter, ManualClock, Policy,
    store::{MemoryConfig, MemoryStats},
};

const START: u64 = 1_700_000_000_000_000;

struct Bounded {
    limiter: Limiter,
    store: Watched,
    clock: ManualClock,
}

impl Bounded {
    fn new(configure: impl FnOnce(MemoryConfig) -> MemoryConfig) -> Self {
        let clock = ManualClock::at(START);
        let store = Watched::new(configure(MemoryConfig::default().clock(clock.clone())));
        Self { limiter: Limiter::new(store.clone()), store, clock }
    }

    fn keys(most: usize) -> Self {
        Self::new(|config| config.max_keys(most))
    }

    fn check<'p>(&self, policy: &'p Policy, key: u64, cost: u64) -> Decision<'p> {
        now(self.limiter.check(policy.charge(key, cost))).expect("the store answers")
    }

    fn stats(&self) -> MemoryStats {
        self.store.0.stats()
    }
}

const KINDS: [&str; Algorithm::EACH.len()] =
    ["sliding-log", "sliding-buckets(4)", "sliding-counter", "token-bucket(10)", "fixed-window"];

#[test]
fn never_more_than_max_keys() {
    for most in [1, 2, 3, 64, 1023, 1024, 3000] {
        for cost in [1, 10] {
            let bounded = Bounded::keys(most);
            let policies = KINDS.map(|kind| {
                policy(kind.split('(').next().expect("a name"), &format!("10/s {kind}"))
            });
            // What newcomers share when nothing can go: one a policy and shard.
            let shared = policies.len() * (most / 8).next_power_of_two();
            for key in 0..3 * most as u64 {
                let all = policies.iter().map(|policy| policy.charge(key, cost));
                let decision = now(bounded.limiter.check(all.collect::<Charges<'_>>()));
                assert!(decision.is_ok());
                if key % 64 < 4 {
                    let keys = bounded.stats().keys;
                    assert!(keys <= most + shared, "{keys} keys of {most} after {key}");
                }
            }
            let stats = bounded.stats();
            let shared = if stats.overflowed > 0 { shared } else { 0 };
            assert!(stats.keys <= most + shared, "{stats:?} of {most}");
        }
    }
}

#[test]
fn newcomers_reclaim_what_has_expired() {
    for kind in KINDS {
        let bounded = Bounded::keys(100);
        let policy = policy("policy", &format!("10/s {kind}"));
        for round in 0..20 {
            for key in 0..100 {
                assert!(bounded.check(&policy, round * 100 + key, 10).is_allowed());
            }
            // A counter and a bucket of units matter for up to two windows.
            bounded.clock.advance(Duration::from_secs(2));
        }
        let stats = bounded.stats();
        assert_eq!((stats.evicted, stats.forgiven, stats.overflowed), (0, 0, 0), "{kind}");
        assert!(stats.keys <= 100);
    }
}

/// A state is dropped when it no longer matters, and not a microsecond before.
#[test]
fn nothing_is_reclaimed_early() {
    for kind in KINDS {
        let bounded = Bounded::keys(50);
        let policy = policy("policy", &format!("10/min {kind}"));
        let decision = bounded.check(&policy, 0, 10);
        assert!(decision.is_allowed());
        let reset =
            micros(decision.outcomes().get(0).expect("an outcome").standing().reset_after());
        bounded.clock.set(START + reset - 1);
        // Newcomers that spend: each looks at a few keys for one that has expired.
        for key in 1..30 {
            assert!(bounded.check(&policy, key, 1).is_allowed());
        }
        assert!(!bounded.check(&policy, 0, 10).is_allowed(), "{kind}");
        bounded.clock.set(START + reset);
        assert!(bounded.check(&policy, 0, 10).is_allowed(), "{kind}");
    }
}

#[test]
fn a_flood_does_not_let_a_denied_key_through() {
    for kind in KINDS {
        let bounded = Bounded::keys(50);
        let policy = policy("policy", &format!("10/min {kind}"));
        assert!(bounded.check(&policy, 0, 10).is_allowed());
        let Decision::Denied(denied) = bounded.check(&policy, 0, 10) else { panic!("exhausted") };
        let wait = micros(denied.retry_after().expect("a wait"));
        for key in 1..5_000 {
            let _ = bounded.check(&policy, key, 1);
            let time = START + (wait - 1) * key / 5_000;
            bounded.clock.set(time);
            if key % 50 == 0 {
                assert!(
                    !bounded.check(&policy, 0, 10).is_allowed(),
                    "{kind} after {key} newcomers"
                );
            }
        }
        bounded.clock.set(START + wait - 1);
        assert!(!bounded.check(&policy, 0, 10).is_allowed(), "{kind}");
        assert!(bounded.stats().evicted > 0);
        bounded.clock.set(START + wait);
        assert!(bounded.check(&policy, 0, 10).is_allowed(), "{kind}");
    }
}

/// Also when some units are left, only not enough, and the newcomers have spent more.
#[test]
fn a_denied_key_with_units_left_stays() {
    for kind in KINDS {
        let bounded = Bounded::keys(20);
        let policy = policy("policy", &format!("10/min {kind}"));
        assert!(bounded.check(&policy, 0, 6).is_allowed());
        let Decision::Denied(denied) = bounded.check(&policy, 0, 5) else { panic!("5 of 4") };
        let wait = micros(denied.retry_after().expect("a wait"));
        for key in 1..500 {
            let _ = bounded.check(&policy, key, 7);
        }
        assert!(bounded.stats().evicted > 0, "{kind}");
        bounded.clock.set(START + wait - 1);
        assert!(!bounded.check(&policy, 0, 5).is_allowed(), "{kind}");
        bounded.clock.set(START + wait);
        assert!(bounded.check(&policy, 0, 5).is_allowed(), "{kind}");
    }
}

/// A key with nothing left is denying, whether or not anybody has asked since.
#[test]
fn an_exhausted_key_that_was_not_denied_yet_stays() {
    for kind in KINDS {
        let bounded = Bounded::keys(20);
        let policy = policy("policy", &format!("10/min {kind}"));
        assert!(bounded.check(&policy, 0, 10).is_allowed());
        for key in 1..500 {
            let _ = bounded.check(&policy, key, 1);
        }
        assert!(!bounded.check(&policy, 0, 1).is_allowed(), "{kind}");
    }
}

#[test]
fn newcomers_share_a_standing_when_nothing_can_go() {
    for kind in KINDS {
        let bounded = Bounded::keys(8);
        let policy = policy("policy", &format!("10/min {kind}"));
        let mut admitted = 0;
        for key in 0..1_000 {
            admitted += u64::from(bounded.check(&policy, key, 10).is_allowed());
        }
        let stats = bounded.stats();
        assert!(stats.overflowed > 900, "{stats:?}");
        assert_eq!((stats.evicted, stats.forgiven), (0, 0));
        assert!((7..=9).contains(&admitted), "{admitted} of 8 keys and what they share");
        assert_eq!(stats.keys, 8 + 1, "{kind}: {stats:?}");
        // Who was there before is not disturbed.
        assert!(!bounded.check(&policy, 0, 1).is_allowed());
    }
}

#[test]
fn forgiven_units_are_counted() {
    for kind in KINDS {
        let bounded = Bounded::keys(8);
        let policy = policy("policy", &format!("10/min {kind}"));
        for key in 0..8 {
            assert!(bounded.check(&policy, key, 3 + u64::from(key > 0)).is_allowed());
        }
        assert_eq!(bounded.stats().forgiven, 0);
        // The least spent goes.
        assert!(bounded.check(&policy, 100, 5).is_allowed());
        let stats = bounded.stats();
        assert_eq!((stats.keys, stats.evicted, stats.forgiven), (8, 1, 3), "{kind}");
        assert!(bounded.check(&policy, 0, 10).is_allowed(), "{kind}: forgotten");
    }
}

/// Bytes are counted as tables and logs grow. What may go beyond: a shard's first entries, a
/// hash table that doubles with them, and the first four records of each log that is there, which
/// are never refused. With few keys that is less than 8 KiB here.
#[test]
fn bytes_are_bounded() {
    const TOLERANCE: usize = 8 << 10;
    for max_bytes in [64 << 10, 256 << 10] {
        let bounded = Bounded::new(|config| config.max_keys(1_000).max_bytes(max_bytes));
        let policy = policy("policy", "1000000/h");
        let mut most = 0;
        for step in 0..60_000 {
            bounded.clock.advance(Duration::from_micros(7));
            let _ = bounded.check(&policy, step % 60, 1);
            if step % 100 == 0 {
                most = most.max(bounded.stats().bytes);
            }
        }
        assert!(most <= max_bytes + TOLERANCE, "{most} bytes of {max_bytes}");
        assert!(most > max_bytes / 2, "{most} bytes of {max_bytes}: the test filled nothing");
        // Given back when it has expired and others come.
        bounded.clock.advance(Duration::from_secs(7_200));
        for key in 0..150 {
            let _ = bounded.check(&policy, 1_000 + key, 1);
        }
        let stats = bounded.stats();
        assert_eq!(stats.evicted, 0, "{stats:?}");
        assert!(stats.bytes <= max_bytes + TOLERANCE);
    }
}

#[test]
fn a_log_without_room_keeps_units_late_never_early() {
    for kind in ["sliding-log", "sliding-buckets(1000)"] {
        let bounded = Bounded::new(|config| config.max_keys(10).max_bytes(2_500));
        let limited = policy("policy", &format!("600/s {kind}"));
        let mut spent = Vec::new();
        for step in 0..20_000_u64 {
            let time = START + step * 500;
            bounded.clock.set(time);
            if bounded.check(&limited, 1, 1).is_allowed() {
                spent.push((time, 1));
            }
        }
        let most = most_in_any_window(&spent, 1_000_000);
        assert!(most <= 600, "{most} of {kind}");
        assert!(spent.len() > 1_000, "units do come back: {}", spent.len());
        assert!(spent.len() < 5_990, "the log had room: {}", spent.len());
        bounded.clock.advance(Duration::from_millis(1_001));
        assert!(bounded.check(&limited, 1, 600).is_allowed());
    }
}
