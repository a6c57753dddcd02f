//! One check on one thread, in memory, beside governor's.
//!
//! `cargo bench --bench check` prints the table of ratios, and `cargo bench --bench check -- in-flight` one part of it;
//! `cargo bench --bench check -- --criterion` follows single figures from change to change.

mod support;

use std::{
    hint::black_box,
    num::NonZeroU32,
    time::{Duration, UNIX_EPOCH},
};

use criterion::Criterion;
use governor::{
    DefaultKeyedRateLimiter, RateLimiter,
    clock::{Clock, FakeRelativeClock},
    middleware::{NoOpMiddleware, StateInformationMiddleware},
    state::keyed::DefaultKeyedStateStore,
};
use plimsoll::{
    Algorithm, Limiter, MemoryStore, Policy, Quota, clock::ManualClock, memory::MemoryConfig,
};
use plimsoll_testing::algorithms::{Parameter, each, with_parameter};
use support::{
    Bar, compare, heading,
    keys::{Walk, keys},
    ready, row,
};

/// From one hot key to more keys than caches hold.
const COUNTS: [(usize, &str); 5] = [
    (1, "1 key"),
    (1_000, "1k keys"),
    (10_000, "10k keys"),
    (100_000, "100k keys"),
    (MANY, "1M keys"),
];
const MANY: usize = 1_000_000;
const ROUNDS: usize = 201;
/// So large a burst is never spent here, at so low a rate that it is not refilled either.
const BURST: u32 = 4_000_000_000;
const RATE: u32 = 1_000;

type Governor = DefaultKeyedRateLimiter<String>;
type StandingStill = RateLimiter<
    String,
    DefaultKeyedStateStore<String>,
    FakeRelativeClock,
    NoOpMiddleware<<FakeRelativeClock as Clock>::Instant>,
>;

fn main() {
    if std::env::args().any(|argument| argument == "--criterion") {
        single_figures(&mut Criterion::default());
    } else if support::measuring() {
        let name = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
        if !name.is_some_and(|name| part(&name)) {
            ratios();
        }
    }
}

fn ratios() {
    let (one, many) = (keys(1), keys(MANY));
    heading(
        "Check of a 24-byte key, 1 thread, beside governor's keyed GCRA (String keys, dashmap), ns",
    );
    for (algorithm, most) in algorithms() {
        let bar = Bar::AtMost(most);
        for (count, how_many) in COUNTS {
            for (verdict, quota) in [("allowed", ample(algorithm)), ("denied", tight(algorithm))] {
                let what = format!("{}, {verdict}, {how_many}", algorithm.name());
                against_governor(&what, quota, &many[..count], bar);
            }
        }
    }
    three_at_once(&one);
    without_clock(&one);
    with_standing(&one);
    with_key_quotas(&one);
    with_a_trial(&one);
    in_flight();
}

/// Prints one part of the table. Returns false if there is none with this name.
fn part(name: &str) -> bool {
    let one = keys(1);
    heading("One check, 1 thread, in memory, ns");
    match name {
        "key-quotas" => with_key_quotas(&one),
        "trial" => with_a_trial(&one),
        "in-flight" => in_flight(),
        _ => return false,
    }
    true
}

/// The token bucket is compared like for like; the others do what governor cannot.
fn algorithms() -> [(Algorithm, f64); Algorithm::EACH.len()] {
    each(10, u64::from(BURST)).map(|algorithm| match algorithm {
        Algorithm::TokenBucket { .. } => (algorithm, 1.7),
        _ => (algorithm, 3.0),
    })
}

/// Never denies. A log of one hot key then holds about 1000 records: one for each microsecond of
/// its window.
fn ample(algorithm: Algorithm) -> Quota {
    let quota = match algorithm {
        Algorithm::TokenBucket { .. } => Quota::per_second(u64::from(RATE)),
        Algorithm::SlidingLog => {
            Quota::new(Quota::MAX_LOGGED, Duration::from_millis(1), algorithm).unwrap()
        }
        _ => Quota::per_minute(Quota::MAX_LOGGED),
    };
    quota.with_algorithm(algorithm).unwrap()
}

/// Admits one charge and then denies for the rest of the day.
fn tight(algorithm: Algorithm) -> Quota {
    let algorithm = with_parameter(algorithm, |parameter| match parameter {
        Parameter::Burst => 1,
        Parameter::Buckets => 10,
    });
    Quota::per_day(1).with_algorithm(algorithm).unwrap()
}

fn governor_quota(quota: Quota) -> governor::Quota {
    if quota.limit() == 1 {
        return governor::Quota::with_period(quota.window()).unwrap();
    }
    let number = |number| NonZeroU32::new(number).unwrap();
    governor::Quota::per_second(number(RATE)).allow_burst(number(BURST))
}

fn roomy() -> MemoryConfig {
    MemoryConfig::default().max_keys(2 * MANY).max_bytes(4 << 30)
}

/// Both with their default clocks, over keys that both know already. Our store has the default size, unless
/// that is too small.
fn against_governor(what: &str, quota: Quota, keys: &[String], bar: Bar) {
    let limiter = match keys.len() {
        MANY => Limiter::new(MemoryStore::new(roomy())),
        _ => Limiter::in_memory(),
    };
    let policy = Policy::new("bench", quota).unwrap();
    let governor: Governor = RateLimiter::keyed(governor_quota(quota));
    let ours = |key: &String| drop(black_box(ready(limiter.check(policy.charge(key, 1)))));
    let theirs = |key: &String| drop(black_box(governor.check_key(key)));
    for key in keys {
        ours(key);
        theirs(key);
    }
    let (mut our_walk, mut their_walk) = (Walk::new(keys), Walk::new(keys));
    let comparison = compare(
        ROUNDS,
        || ours(black_box(our_walk.step())),
        || theirs(black_box(their_walk.step())),
    );
    row(what, "ns", comparison, bar);
}

/// Compares one check of three policies with three checks of one policy each, for the same key.
fn three_at_once(keys: &[String]) {
    let key = &keys[0];
    let limiter = Limiter::new(MemoryStore::new(roomy()));
    for (what, quota) in quotas_of_the_bucket() {
        let policies = ["a", "b", "c"].map(|name| Policy::new(name, quota).unwrap());
        let [a, b, c] = &policies;
        let comparison = compare(
            ROUNDS,
            || {
                let key = black_box(key);
                let charges = [a.charge(key, 1), b.charge(key, 1), c.charge(key, 1)];
                drop(black_box(ready(limiter.check(charges))));
            },
            || {
                for policy in &policies {
                    drop(black_box(ready(limiter.check(policy.charge(black_box(key), 1)))));
                }
            },
        );
        let what = format!("token-bucket, {what}, 3 policies in one check / 3 checks");
        row(&what, "ns", comparison, Bar::AtMost(1.1));
    }
}

/// Measures the same with clocks that stand still. The difference is the cost of the clock.
fn without_clock(keys: &[String]) {
    for (what, quota) in quotas_of_the_bucket() {
        let clock = ManualClock::at(1_700_000_000_000_000);
        let limiter = Limiter::new(MemoryStore::new(roomy().clock(clock)));
        let policy = Policy::new("bench", quota).unwrap();
        let clock = FakeRelativeClock::default();
        let governor: StandingStill =
            RateLimiter::new(governor_quota(quota), DefaultKeyedStateStore::default(), clock);
        let comparison = compare(
            ROUNDS,
            || drop(black_box(ready(limiter.check(policy.charge(black_box(&keys[0]), 1))))),
            || drop(black_box(governor.check_key(black_box(&keys[0])))),
        );
        row(
            &format!("token-bucket, {what}, 1 key, clocks that stand still"),
            "ns",
            comparison,
            Bar::Open,
        );
    }
}

/// Governor's default answer says nothing but yes; here it reports what remains, as ours does.
fn with_standing(keys: &[String]) {
    let (what, quota) = quotas_of_the_bucket()[0];
    let limiter = Limiter::new(MemoryStore::new(roomy()));
    let policy = Policy::new("bench", quota).unwrap();
    let governor = Governor::keyed(governor_quota(quota));
    let governor = governor.with_middleware::<StateInformationMiddleware>();
    let ours = || {
        let decision = ready(limiter.check(policy.charge(black_box(&keys[0]), 1))).unwrap();
        black_box(decision.outcomes().next().expect("an outcome").standing().remaining);
    };
    let theirs = || {
        let snapshot = governor.check_key(black_box(&keys[0])).unwrap();
        black_box(snapshot.remaining_burst_capacity());
    };
    let comparison = compare(ROUNDS, ours, theirs);
    row(&format!("token-bucket, {what}, 1 key, remaining read"), "ns", comparison, Bar::Open);
}

/// Compares a policy of which 10,000 keys have a quota of their own with one without any.
fn with_key_quotas(one: &[String]) {
    let limiter = Limiter::new(MemoryStore::new(roomy()));
    let until = UNIX_EPOCH + Duration::from_secs(1 << 33);
    let listed = keys(10_000);
    let others: Vec<_> = listed.iter().map(|key| format!("other-{key}")).collect();
    for (what, quota) in quotas_of_the_bucket() {
        let [plain, keyed] = ["plain", "keyed"].map(|name| Policy::new(name, quota).unwrap());
        listed.iter().for_each(|key| keyed.set_key_quota(key, quota, until).unwrap());
        for (whose, keys) in [
            ("one of them", one),
            ("1 other", &others[..1]),
            ("each of them", &listed),
            ("10k others", &others),
        ] {
            let check = |policy: &Policy, key: &String| {
                drop(black_box(ready(limiter.check(policy.charge(key, 1)))));
            };
            let (mut our_walk, mut their_walk) = (Walk::new(keys), Walk::new(keys));
            let comparison = compare(
                ROUNDS,
                || check(&keyed, black_box(our_walk.step())),
                || check(&plain, black_box(their_walk.step())),
            );
            let what = format!("token-bucket, {what}, 10k key quotas / none, {whose}");
            row(&what, "ns", comparison, Bar::AtMost(1.15));
        }
    }
}

/// Compares a trial beside a live charge with a second live charge.
fn with_a_trial(keys: &[String]) {
    let limiter = Limiter::new(MemoryStore::new(roomy()));
    let key = &keys[0];
    let [(_, ample), (_, tight)] = quotas_of_the_bucket();
    for (what, first, second) in [
        ("both allow", ample, ample),
        ("the first denies", tight, ample),
        ("the second denies", ample, tight),
        ("both deny", tight, tight),
    ] {
        let first = Policy::new("first", first).unwrap();
        let trial = Policy::new("trial", second).unwrap();
        let live = Policy::new("live", second).unwrap();
        let comparison = compare(
            ROUNDS,
            || {
                let key = black_box(key);
                let charges = [first.charge(key, 1), trial.charge(key, 1).trial()];
                drop(black_box(ready(limiter.check(charges))));
            },
            || {
                let key = black_box(key);
                let charges = [first.charge(key, 1), live.charge(key, 1)];
                drop(black_box(ready(limiter.check(charges))));
            },
        );
        // In a denied check, a trial is spent and a live charge is not. One is spent beside a live charge
        // that denies, and a second live charge that denies keeps the first from being spent.
        let bar = if what == "both allow" { Bar::AtMost(1.0) } else { Bar::Open };
        row(&format!("token-bucket, {what}, live + trial / live + live"), "ns", comparison, bar);
    }
}

/// Compares a unit in flight, which is taken and released, with a check of a rate.
fn in_flight() {
    let limiter = Limiter::new(MemoryStore::new(roomy()));
    let [rate, jobs] = [("rate", "1000000/30s"), ("jobs", "1000000 concurrent expires(30s)")]
        .map(|(name, quota)| Policy::new(name, quota).unwrap());
    let thousand = keys(1_000);
    let (mut our_walk, mut their_walk) = (Walk::new(&thousand), Walk::new(&thousand));
    // In a runtime, as in a service: the first permit starts the task that renews.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let comparison = compare(
        ROUNDS,
        || {
            let held = ready(limiter.reserve(jobs.charge(black_box(our_walk.step()), 1)));
            drop(black_box(held.unwrap()));
        },
        || drop(black_box(ready(limiter.check(rate.charge(black_box(their_walk.step()), 1))))),
    );
    row("in flight, taken and released / a check, 1k keys", "ns", comparison, Bar::AtMost(2.2));
}

fn quotas_of_the_bucket() -> [(&'static str, Quota); 2] {
    let bucket = Algorithm::TokenBucket { burst: u64::from(BURST) };
    [("allowed", ample(bucket)), ("denied", tight(bucket))]
}

fn single_figures(criterion: &mut Criterion) {
    let key = &keys(1)[0];
    let mut group = criterion.benchmark_group("check");
    for (algorithm, _) in algorithms() {
        for (verdict, quota) in [("allowed", ample(algorithm)), ("denied", tight(algorithm))] {
            let limiter = Limiter::new(MemoryStore::new(roomy()));
            let policy = Policy::new("bench", quota).unwrap();
            group.bench_function(format!("{}/{verdict}", algorithm.name()), |bencher| {
                bencher.iter(|| ready(limiter.check(policy.charge(black_box(key), 1))));
            });
        }
    }
    group.finish();
}
