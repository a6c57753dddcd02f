//! The keys that are limited now.

use std::time::Duration;

use plimsoll::{Limiter, MemoryStore, Policy, clock::ManualClock, memory::MemoryConfig};
use plimsoll_control::{
    OffenderOrder::{Denied, Spent},
    Offenders,
};

/// Counts a check of this key.
fn check(offenders: &Offenders, limiter: &Limiter, policy: &Policy, key: u64) {
    offenders.record(&limiter.check_now(policy.charge(key, 1)).expect("an embedded store"));
}

fn limiter(clock: &ManualClock) -> Limiter {
    let config = MemoryConfig::default().max_keys(1_000).clock(clock.clone());
    Limiter::new(MemoryStore::new(config))
}

#[test]
fn counts_are_halved_each_minute_and_forgotten() {
    let clock = ManualClock::at(60_000_000);
    let limiter = limiter(&clock);
    let offenders = Offenders::with_clock(10, clock.clone());
    let policy = Policy::new("api", "1/h").expect("a policy");
    (0..9).for_each(|_| check(&offenders, &limiter, &policy, 42));
    let denied = || offenders.top("api", 1, Denied).first().map(|it| it.denied);
    assert_eq!(denied(), Some(8));
    let revealing = offenders.clone().show_keys();
    assert_eq!(revealing.clone().top("api", 1, Denied)[0].key, "42");
    assert!(offenders.top("api", 1, Denied)[0].key.starts_with('#'));
    clock.advance(Duration::from_secs(60));
    assert_eq!(denied(), Some(4));
    check(&offenders, &limiter, &policy, 42);
    assert_eq!(denied(), Some(5));
    clock.advance(Duration::from_secs(10 * 60));
    assert_eq!(denied(), None);
    assert!(offenders.top("api", 1, Denied).is_empty());
}

#[test]
fn a_spender_is_found_by_samples_and_its_key_is_not_shown() {
    let clock = ManualClock::at(60_000_000);
    let limiter = limiter(&clock);
    let offenders = Offenders::with_clock(10, clock);
    let policy = Policy::new("api", "1000000/h").expect("a policy");
    for request in 0..100_000_u64 {
        check(&offenders, &limiter, &policy, if request % 4 == 0 { request % 64 } else { 424_242 });
    }
    let top = offenders.top("api", 1, Spent).remove(0);
    assert!(top.key.starts_with('#') && !top.key.contains("424242"), "{top:?}");
    // The standard deviation of the estimate is below 2%.
    assert!((60_000..90_000).contains(&top.spent), "{top:?}");
    assert_eq!(top.denied, 0);
}
