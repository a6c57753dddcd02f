//! Values at both ends of what is allowed, and errors that say what is.

use std::time::Duration;

use plimsoll::{Algorithm, Error, Key, Limiter, Policy, Quota, error::ErrorKind, policy::Charges};
use plimsoll_testing::{
    algorithms::{facts, with_parameters},
    seed,
};
use proptest::{prelude::*, sample::select};

const MAX_LIMIT: u64 = 1_000_000_000_000;
const MAX_LOGGED: u64 = 1 << 31;
const MIN_EXPIRY: Duration = Duration::from_secs(1);
const MIN_WINDOW: Duration = Duration::from_millis(1);
const MAX_WINDOW: Duration = Duration::from_secs(400 * 86_400);
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, parts: &[&str]) {
    let error = result.expect_err("out of bounds");
    assert!(error.kind() == ErrorKind::Invalid, "{error:?}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn limit() {
    for algorithm in Algorithm::EACH.iter().copied() {
        let most = facts(algorithm).max_limit;
        let quota = |limit| Quota::new(limit, Duration::from_secs(1), algorithm);
        for limit in [1, most] {
            assert_eq!(quota(limit).expect("allowed").limit(), limit);
        }
        refused(quota(0), &["limit", "is 0", "1 to 1000000000000"]);
        refused(quota(MAX_LIMIT + 1), &["limit", "is 1000000000001", "1 to 1000000000000"]);
        refused(quota(u64::MAX), &["limit", "18446744073709551615"]);
        refused(quota(most + 1), &["limit", &(most + 1).to_string(), &most.to_string()]);
    }
}

#[test]
fn window() {
    for algorithm in Algorithm::EACH.iter().copied() {
        let quota = |window| Quota::new(1, window, algorithm);
        for window in [MIN_WINDOW, MAX_WINDOW] {
            assert_eq!(quota(window).expect("allowed").window(), window);
        }
        let micro = Duration::from_micros(1);
        refused(quota(MIN_WINDOW - micro), &["window", "999µs", "1 ms to 400 days"]);
        refused(quota(MAX_WINDOW + micro), &["window", "34560000.000001s", "1 ms to 400 days"]);
        refused(quota(Duration::ZERO), &["window", "0ns", "1 ms to 400 days"]);
        refused(quota(Duration::MAX), &["window", "1 ms to 400 days"]);
        let uneven = MIN_WINDOW + Duration::from_nanos(1);
        refused(quota(uneven), &["window", "1.000001ms", "whole number of microseconds"]);
    }
}

#[test]
fn burst() {
    let quota = |limit, window, burst| Quota::new(limit, window, Algorithm::TokenBucket { burst });
    let second = Duration::from_secs(1);
    for burst in [1, MAX_LIMIT] {
        assert_eq!(quota(MAX_LIMIT, second, burst).expect("allowed").capacity(), burst);
    }
    refused(quota(1, second, 0), &["burst", "is 0", "1 to 1000000000000"]);
    refused(
        quota(MAX_LIMIT, second, MAX_LIMIT + 1),
        &["burst", "1000000000001", "1 to 1000000000000"],
    );
    // It refills in 400 days at most.
    assert!(quota(1, second, 400 * 86_400).is_ok());
    refused(quota(1, second, 400 * 86_400 + 1), &["burst", "34560001", "400 days"]);
    assert!(quota(1, MAX_WINDOW, 1).is_ok());
    refused(quota(1, MAX_WINDOW, 2), &["burst", "is 2", "400 days"]);
}

#[test]
fn buckets() {
    let quota = |n| Quota::per_second(10).with_algorithm(Algorithm::SlidingBuckets(n));
    for n in [1, 1_000] {
        assert!(quota(n).is_ok());
    }
    refused(quota(0), &["is 0", "1 to 1000"]);
    refused(quota(1_001), &["is 1001", "1 to 1000"]);
}

#[test]
fn lease() {
    let millis = Duration::from_millis;
    let tenth = "(a tenth of the window)";
    for algorithm in Algorithm::EACH.iter().copied() {
        let algorithm = with_parameters(algorithm, 1, 10_000);
        let quota = |window| Quota::new(10_000, window, algorithm).expect("allowed");
        let minute = quota(Duration::from_secs(60));
        assert_eq!(minute.lease(), None);
        for lease in [millis(1), millis(6_000)] {
            let leased = minute.leased(lease).expect("allowed");
            assert_eq!((leased.lease(), leased.limit()), (Some(lease), 10_000));
            assert_eq!((leased.window(), leased.algorithm()), (minute.window(), algorithm));
            assert_eq!(leased.counted().lease(), None);
            assert_ne!(leased, minute);
        }
        refused(
            minute.leased(Duration::ZERO),
            &["lease is 0ns", "1 ms to 6s for 10000/min", tenth],
        );
        refused(minute.leased(millis(6_001)), &["lease is 6.001s", "1 ms to 6s", tenth]);
        refused(minute.leased(Duration::MAX), &["lease is", "1 ms to 6s", tenth]);
        let uneven = millis(1) + Duration::from_micros(1);
        refused(minute.leased(uneven), &["lease is 1.001ms", "a whole number of milliseconds"]);

        // A tenth of half a second is 50 ms, and a tenth is rounded down.
        assert!(quota(millis(500)).leased(millis(50)).is_ok());
        refused(quota(millis(500)).leased(millis(51)), &["lease is 51ms", "1 ms to 50ms", tenth]);
        refused(quota(millis(519)).leased(millis(52)), &["lease is 52ms", "1 ms to 51ms", tenth]);
        let short = ["window is 499ms", "500 ms to 400 days", "leased"];
        refused(quota(millis(499)).leased(millis(1)), &short);

        let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
        assert!(quota(day).leased(hour).is_ok());
        let beyond = hour + millis(1);
        refused(quota(day).leased(beyond), &["lease is 3600.001s", "1 ms to 3600s", "(1 hour)"]);
        let most = 400 * day;
        assert!(quota(most - hour).leased(hour).is_ok());
        let together = "window and lease are at most 400 days";
        refused(quota(most - millis(5)).leased(millis(6)), &["lease is 6ms", "to 5ms", together]);
        refused(quota(most).leased(millis(1)), &["lease is 1ms", "none for 10000/400d", together]);
    }
}

#[test]
fn lease_of_a_burst() {
    let (millis, remains) = (Duration::from_millis, "the burst must exceed what refills");
    let quota = |limit, burst| {
        Quota::per_second(limit).with_algorithm(Algorithm::TokenBucket { burst }).expect("allowed")
    };
    // 100 units a second are 1 in 10 ms, and a part of a unit counts as a whole one.
    for (lease, counted) in [(1, 4), (10, 4), (11, 3), (20, 3), (21, 2), (40, 1)] {
        let leased = quota(100, 5).leased(millis(lease)).expect("allowed");
        assert_eq!(leased.counted(), quota(100, counted), "{leased}");
        assert_eq!(leased.capacity(), 5);
    }
    refused(quota(100, 5).leased(millis(41)), &["lease is 41ms", "1 ms to 40ms", remains]);
    let none = ["lease is 1ms", "allowed is none for 100/s token-bucket(1)", remains];
    refused(quota(100, 1).leased(millis(1)), &none);
    let fast = quota(1_000_000, 999).leased(millis(1));
    refused(fast, &["none for 1000000/s token-bucket(999)", remains]);
    assert!(quota(MAX_LOGGED, MAX_LIMIT).leased(millis(100)).is_ok());
    // A lease that the quota has does not fit each algorithm.
    let leased = Quota::per_second(100).leased(millis(41)).expect("allowed");
    let changed = leased.with_algorithm(Algorithm::TokenBucket { burst: 5 });
    refused(changed, &["lease is 41ms", "1 ms to 40ms for 100/s token-bucket(5)"]);
    let changed = leased.with_algorithm(Algorithm::FixedWindow).expect("allowed");
    assert_eq!(changed.lease(), Some(millis(41)));
}

#[test]
fn the_shortest_lease_of_a_burst_is_1_ms() {
    let lease = Duration::from_millis(1);
    let quota: Quota = "1000/s token-bucket(2)".parse().expect("valid");
    assert_eq!(quota.leased(lease).expect("1 of 2 units refills").lease(), Some(lease));
    let quota: Quota = "1001/s token-bucket(2)".parse().expect("valid");
    refused(quota.leased(lease), &["lease", "none for"]);
}

#[test]
fn expiry() {
    let (limit, micro) = (Quota::concurrent(5), Duration::from_micros(1));
    for expiry in [MIN_EXPIRY, Quota::MAX_WINDOW] {
        assert_eq!(limit.expires(expiry).expect("in bounds").window(), expiry);
    }
    for expiry in [MIN_EXPIRY - micro, Quota::MAX_WINDOW + micro] {
        refused(limit.expires(expiry), &["expiry", "1 s to 400 days"]);
    }
    refused(Quota::per_second(5).expires(MIN_EXPIRY), &["expiry", "none for 5/s"]);
    assert_eq!(limit.with_algorithm(Algorithm::SlidingLog).expect("its algorithm"), limit);
    refused(limit.with_algorithm(Algorithm::FixedWindow), &["algorithm", "none for"]);
}

#[test]
fn a_leased_quota_is_counted_for_longer() {
    for (text, counted) in [
        ("60000/min leased(500ms)", "60000/60500ms"),
        ("60000/min sliding-buckets(6) leased(6s)", "60000/66s sliding-buckets(6)"),
        ("60000/min sliding-counter leased(500ms)", "60000/min sliding-counter"),
        ("60000/min fixed-window leased(500ms)", "60000/min fixed-window"),
        ("60000/min token-bucket(1000) leased(500ms)", "60000/min token-bucket(500)"),
        (
            "1000000000000/s token-bucket(1000000000000) leased(100ms)",
            "1000000000000/s token-bucket(900000000000)",
        ),
        ("100/min", "100/min"),
    ] {
        let [quota, counted] = [text, counted].map(|text| text.parse::<Quota>().expect("valid"));
        assert_eq!(quota.counted(), counted, "{text}");
        assert_eq!(counted.counted(), counted);
    }
}

#[test]
fn leases_as_text() {
    for (text, canonical) in [
        ("60000/min leased(500ms)", "60000/min leased(500ms)"),
        ("60000/min sliding-log leased(1000ms)", "60000/min leased(1s)"),
        ("50/s token-bucket(20) leased(20ms)", "50/s token-bucket(20) leased(20ms)"),
        ("50/s fixed-window leased(20000us)", "50/s fixed-window leased(20ms)"),
        ("1/day leased(1h)", "1/d leased(1h)"),
        ("1/day leased(60minutes)", "1/d leased(1h)"),
    ] {
        let quota: Quota = text.parse().expect("valid");
        assert_eq!(quota.to_string(), canonical);
        assert_eq!(canonical.parse::<Quota>().expect("valid"), quota);
    }
    let wrong = [
        "100/min leased",
        "100/min leased()",
        "100/min leased(ms)",
        "100/min leased(5)",
        "100/min leased(500ms",
        "100/min leased(-5ms)",
        "100/min leased(0.5s)",
        "100/min leased(5 ms)",
        "100/min leased(5ms) leased(5ms)",
        "100/min leased(5ms) x",
        "100/min leased(5ms) fixed-window",
        "100/min x leased(5ms)",
    ];
    for text in wrong {
        refused(
            text.parse::<Quota>(),
            &["quota is", text, "LIMIT/WINDOW [ALGORITHM] [leased(TIME)]"],
        );
    }
    let far = "100/min leased(99999999999999999999d)";
    refused(far.parse::<Quota>(), &["quota is", far]);
    refused("100/min leased(99999999999999999d)".parse::<Quota>(), &["lease is", "1 ms to 6s"]);
    refused("100/min leased(0ms)".parse::<Quota>(), &["lease is 0ns", "1 ms to 6s"]);
}

#[test]
fn constructors_panic_beyond_the_log() {
    let _ = [Quota::per_second(1), Quota::per_minute(MAX_LOGGED), Quota::per_hour(1)];
    let beyond: [fn() -> Quota; 5] = [
        || Quota::per_second(0),
        || Quota::per_minute(MAX_LOGGED + 1),
        || Quota::per_hour(0),
        || Quota::per_day(u64::MAX),
        || Quota::per_day(0),
    ];
    for make in beyond {
        assert!(std::panic::catch_unwind(make).is_err());
    }
}

#[test]
fn names() {
    let quota = Quota::per_second(1);
    let longest = "a".repeat(64);
    for name in ["a", "0", "a-b_c.9", longest.as_str()] {
        assert_eq!(Policy::new(name, quota).expect("allowed").name(), name);
        let counting = Policy::new("p", quota).expect("allowed").with_unit(name);
        assert_eq!(counting.expect("allowed").unit(), Some(name));
    }
    let too_long = "a".repeat(65);
    let endless = "x".repeat(1 << 20);
    let wrong = [
        "",
        "A",
        "aB",
        "-a",
        "_a",
        ".a",
        "a b",
        "a\"b",
        "a{b",
        "a}b",
        "a:b",
        "a/b",
        "a,b",
        "a;b",
        "a\nb",
        "a\0b",
        "a\\b",
        "é",
        "aé",
        "a\u{1f600}",
        "a\u{7f}",
        too_long.as_str(),
    ];
    for name in wrong {
        let shown = format!("{name:?}");
        refused(Policy::new(name, quota), &["policy name", &shown, "1 to 64 characters"]);
        let policy = Policy::new("p", quota).expect("allowed");
        refused(policy.with_unit(name), &["unit", &shown, "1 to 64 characters"]);
    }
    let error = Policy::new(&endless, quota).expect_err("too long");
    assert!(error.to_string().len() < 1_000, "an error does not repeat a megabyte");
}

#[test]
fn keys() {
    let bytes: Vec<u8> = (0..1 << 16).map(|index| (index % 251 + 1) as u8).collect();
    let lengths = [0, 1, 45, 46, 47, 48, 64, 1_000, 1 << 16];
    let keys: Vec<Key> = lengths.iter().map(|length| Key::from(&bytes[..*length])).collect();
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(keys.iter().position(|other| other == key), Some(index), "all differ");
        let plain = lengths[index] <= 46;
        assert_eq!(key.reveal() == &bytes[..lengths[index]], plain);
        assert_eq!(*key, Key::from(&bytes[..lengths[index]]), "the same bytes are the same key");
        assert_ne!(*key, key.tagged("tenant"));
        assert_ne!(key.tagged("tenant"), key.tagged("other"));
        assert_ne!(*key, Key::ANONYMOUS);
    }
    for spelled in [&b"\0a\x7f\0\0\x01"[..], b"\0n\0\0\0\0\0\0\0\x07", b"\0", b"\0p"] {
        let key = Key::from(spelled);
        assert_ne!(key.reveal(), spelled, "what begins with a zero byte is not kept as it is");
        assert_ne!(key, Key::from(std::net::IpAddr::from([127, 0, 0, 1])), "nor is it an address");
        assert_ne!(key, Key::from(7), "nor a number");
    }
    let (short, long) = (Key::from("a"), Key::from("b".repeat(46)));
    for pair in [Key::from((short, short)), Key::from((short, long))] {
        assert_ne!(pair, Key::from(pair.reveal()), "nobody is a pair by spelling it");
    }
    let spelled = [&b"\0p\0\x01a\0\x2e"[..], &[b'b'; 46]].concat();
    assert_ne!(Key::from((short, long)), Key::from(&spelled), "not even by what it is made from");
    // A digest's bytes are another key than the digest.
    assert_ne!(keys[6], Key::from(keys[6].reveal()));
    assert!(!format!("{:?}", Key::from("secret")).contains("secret"));
}

#[tokio::test]
async fn charges_in_a_check() {
    let limiter = Limiter::in_memory();
    let policy = Policy::new("p", Quota::per_second(100)).expect("valid");
    let charges = |count: u64| (0..count).map(|key| policy.charge(key, 1)).collect::<Charges<'_>>();
    assert_eq!(limiter.check(charges(32)).await.expect("allowed").outcomes().len(), 32);
    let parts = ["number of charges in a check", "more than 32", "at most 32"];
    refused(limiter.check(charges(33)).await, &parts);
    refused(limiter.peek(charges(33)).await, &parts);
    refused(limiter.reset(charges(33)).await, &parts);
    refused(limiter.reserve(charges(1_000)).await.map(|_| ()), &parts);
    refused(limiter.until_ready(charges(33), MIN_WINDOW).await, &parts);
    // Equal ones are one.
    let equal: Charges<'_> = (0..1_000).map(|_| policy.charge("alice", 0)).collect();
    assert_eq!(limiter.check(equal).await.expect("allowed").outcomes().len(), 1);
    let none = limiter.check([]).await.expect("allowed");
    assert!(none.is_allowed() && none.outcomes().len() == 0 && none.binding().is_none());
}

#[tokio::test]
async fn costs() {
    let limiter = Limiter::in_memory();
    for algorithm in Algorithm::EACH.iter().copied() {
        let quota = Quota::per_day(1).with_algorithm(algorithm).expect("valid");
        let policy = Policy::new("p", quota).expect("valid");
        let check = |cost| limiter.check(policy.charge("alice", cost));
        assert!(check(0).await.expect("an answer").is_allowed());
        for cost in [2, 1 << 53, u64::MAX] {
            let decision = check(cost).await.expect("an answer");
            let plimsoll::Decision::Denied(denied) = decision else { panic!("{cost} of 1") };
            assert!(denied.is_over_capacity());
        }
        assert!(check(1).await.expect("an answer").is_allowed());
    }
}

#[test]
fn texts_that_are_no_quota() {
    let wrong = [
        "",
        " ",
        "100",
        "/s",
        "100/",
        "100/fortnight",
        "-1/s",
        "+1/s",
        "1.5/s",
        "1/1.5s",
        "1/-1s",
        "99999999999999999999/s",
        "1/99999999999999999999s",
        "1/s log",
        "1/s sliding-log extra",
        "1/s token-bucket",
        "1/s token-bucket()",
        "1/s token-bucket(x)",
        "1/s token-bucket(+1)",
        "1/s sliding-buckets",
        "1/s sliding-buckets(70000)",
        "1/s sliding-log(3)",
        "1//s",
        "é/s",
    ];
    for text in wrong {
        let parts = ["quota", "LIMIT/WINDOW", "100/min"];
        refused(text.parse::<Quota>(), &parts);
    }
    refused("0/s".parse::<Quota>(), &["limit", "1 to"]);
    refused("1/999us".parse::<Quota>(), &["window", "1 ms"]);
    refused("1/401d".parse::<Quota>(), &["window", "400 days"]);
    refused("1/s sliding-buckets(0)".parse::<Quota>(), &["1 to 1000"]);
    refused("1/s token-bucket(0)".parse::<Quota>(), &["burst"]);
}

fn quotas() -> impl Strategy<Value = Quota> {
    let window = prop_oneof![
        1_000..34_560_000_000_000_u64,
        (1..400_u64).prop_map(|days| days * 86_400_000_000),
        (1..9_000_u64).prop_map(|seconds| seconds * 1_000_000),
        (1..9_000_u64).prop_map(|millis| millis * 1_000),
    ];
    let limit = prop_oneof![1..=MAX_LOGGED, 1..=MAX_LIMIT, 1..100_u64];
    let lease = proptest::option::of(1..=1_000_u64);
    (limit, window, select(Algorithm::EACH), 1..=1_000_u16, 1..=MAX_LIMIT, lease).prop_filter_map(
        "out of bounds",
        |(limit, window, pick, n, burst, lease)| {
            let algorithm = with_parameters(pick, n, if n % 2 == 0 { limit } else { burst });
            let quota = Quota::new(limit, Duration::from_micros(window), algorithm);
            // Up to a tenth of the window.
            let longest = (window / 10_000).min(3_600_000);
            let lease = lease.map(|part| Duration::from_millis(longest * part / 1_000));
            let quota = quota.ok()?;
            Some(lease.and_then(|lease| quota.leased(lease).ok()).unwrap_or(quota))
        },
    )
}

#[test]
fn a_quota_is_what_its_text_says() {
    let name = "a_quota_is_what_its_text_says";
    seed::property(name, ProptestConfig::with_cases(2_000), quotas(), |quota| {
        let text = quota.to_string();
        prop_assert_eq!(text.parse::<Quota>().expect("parses"), quota, "{}", text);
        // A store counts by a quota that is valid as well.
        let counted = quota.counted().to_string();
        prop_assert_eq!(counted.parse::<Quota>().expect("parses"), quota.counted(), "{}", text);
        Ok(())
    });
}

#[test]
fn no_text_makes_the_parser_panic() {
    let texts = "[0-9]{0,22}/?[0-9]{0,21}[a-zé]{0,4}( [a-z-]{0,15}(\\([0-9]{0,6}\\))?)?\
                 ( leased\\([0-9]{0,21}[a-zé]{0,4}\\)?)?";
    let name = "no_text_makes_the_parser_panic";
    seed::property(name, ProptestConfig::with_cases(2_000), texts, |text| {
        let _ = text.parse::<Quota>();
        Ok(())
    });
}
