//! Quotas and configurations as serialized data.
#![cfg(feature = "serde")]

use std::{fmt::Debug, time::Duration};

use plimsoll::{
    Algorithm, BreakerConfig, DenialEvents, Headers, MemoryConfig, OnFailure, Quota, Reset,
    Resilience,
};
use plimsoll_testing::seed;
use proptest::prelude::*;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Reads what was written.
fn round_trip<T: Serialize + DeserializeOwned>(value: &T) -> T {
    let text = serde_json::to_string(value).expect("it is written");
    assert!(!text.contains("null"), "TOML has no null: {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn written<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("it is written")
}

fn error<T: DeserializeOwned + Debug>(data: Value) -> String {
    serde_json::from_value::<T>(data).expect_err("not allowed").to_string()
}

/// Durations of the range that all fields allow.
fn durations() -> impl Strategy<Value = Duration> {
    (1_000_u64..3_600_000_000).prop_map(Duration::from_micros)
}

fn memory_configs() -> impl Strategy<Value = MemoryConfig> {
    (1..usize::MAX, any::<usize>(), any::<Option<u64>>()).prop_map(|(keys, bytes, seed)| {
        let config = MemoryConfig::default().max_keys(keys).max_bytes(bytes);
        seed.map_or(config.clone(), |seed| config.hash_seed(seed))
    })
}

fn breaker_configs() -> impl Strategy<Value = BreakerConfig> {
    let numbers = (any::<u32>(), 1..=100_u32, 1..u32::MAX);
    (durations(), durations(), durations(), durations(), numbers).prop_map(
        |(window, slow, open, ramp, (min_calls, failures_percent, consecutive))| {
            BreakerConfig::default()
                .window(window)
                .slow(slow)
                .open(open)
                .ramp(ramp)
                .min_calls(min_calls)
                .failures_percent(failures_percent)
                .consecutive(consecutive)
        },
    )
}

fn resiliences() -> impl Strategy<Value = Resilience> {
    let deadline = proptest::option::of(durations());
    let breaker = proptest::option::of(breaker_configs());
    let memory = proptest::option::of(memory_configs());
    (deadline, breaker, memory, 1..u32::MAX, any::<bool>()).prop_map(
        |(deadline, breaker, memory, instances, deny_cache)| {
            let mut config = match deny_cache {
                true => Resilience::default(),
                false => Resilience::none(),
            };
            if let Some(deadline) = deadline {
                config = config.deadline(deadline);
            }
            config = match breaker {
                Some(breaker) => config.breaker(breaker),
                None => config.without_breaker(),
            };
            if let Some(memory) = memory {
                config = config.fallback(memory);
            }
            config.instances(instances)
        },
    )
}

#[test]
fn configurations_are_read_as_they_were_written() {
    let config = || ProptestConfig::with_cases(200);
    seed::property("memory settings", config(), memory_configs(), |config| {
        let read = round_trip(&config);
        prop_assert_eq!(format!("{read:?}"), format!("{config:?}"));
        Ok(())
    });
    seed::property("breaker settings", config(), breaker_configs(), |config| {
        prop_assert_eq!(round_trip(&config), config);
        Ok(())
    });
    seed::property("resilience settings", config(), resiliences(), |config| {
        prop_assert_eq!(written(&round_trip(&config)), written(&config));
        Ok(())
    });
}

#[test]
fn quotas_and_names_are_texts() {
    for (quota, text) in [
        ("100/min", "100/min"),
        ("5/10s sliding-counter", "5/10s sliding-counter"),
        ("50/s token-bucket(20)", "50/s token-bucket(20)"),
        ("1_000/day sliding-buckets(24)", "1000/d sliding-buckets(24)"),
        ("60_000/min leased(500ms)", "60000/min leased(500ms)"),
    ] {
        let quota: Quota = serde_json::from_value(json!(quota)).unwrap();
        assert_eq!(written(&quota), json!(text));
        assert_eq!(round_trip(&quota), quota);
    }
    for algorithm in Algorithm::EACH {
        assert_eq!(round_trip(algorithm), *algorithm);
    }
    assert_eq!(written(&Algorithm::TokenBucket { burst: 20 }), json!("token-bucket(20)"));
    for (on_failure, name) in
        [(OnFailure::Local, "local"), (OnFailure::Allow, "allow"), (OnFailure::Deny, "deny")]
    {
        assert_eq!((written(&on_failure), round_trip(&on_failure)), (json!(name), on_failure));
    }
    for (events, name) in
        [(DenialEvents::OncePerSecond, "once-per-second"), (DenialEvents::All, "all")]
    {
        assert_eq!((written(&events), round_trip(&events)), (json!(name), events));
    }
}

#[test]
fn missing_fields_have_their_defaults() {
    let memory: MemoryConfig = serde_json::from_value(json!({ "max_keys": 7 })).unwrap();
    let expected = json!({ "max_keys": 7, "max_bytes": 256 << 20, "hash_seed": "off" });
    assert_eq!(written(&memory), expected);
    let empty = || json!({});
    let resilience: Resilience = serde_json::from_value(empty()).unwrap();
    assert_eq!(written(&resilience), written(&Resilience::default()));
    assert_eq!(serde_json::from_value::<Headers>(empty()).unwrap(), Headers::default());
    assert_eq!(
        written(&Resilience::default())["deadline"],
        json!("50ms"),
        "durations are readable"
    );
    let off =
        json!({ "deadline": "off", "breaker": "off", "fallback": false, "deny_cache": false });
    let off: Resilience = serde_json::from_value(off).unwrap();
    assert_eq!(written(&off), written(&Resilience::none()));
}

#[test]
fn an_error_names_the_field_the_value_and_what_is_allowed() {
    for (message, expected) in [
        (
            error::<Quota>(json!("100/fortnight")),
            "quota is \"100/fortnight\", in which \"fortnight\" is",
        ),
        (error::<Quota>(json!("0/min")), "limit is 0, allowed is 1 to 1000000000000"),
        (error::<Quota>(json!("9/min leased(7s)")), "lease is 7s, allowed is 1 ms to 6s for 9/min"),
        (error::<Algorithm>(json!("leaky")), "algorithm is \"leaky\", allowed is sliding-log, "),
        (error::<OnFailure>(json!("close")), "unknown variant `close`, expected one of `local`"),
        (
            error::<MemoryConfig>(json!({ "max_key": 5 })),
            "MemoryConfig::max_key: unknown field `max_key`, expected one of `max_keys`, `max_bytes`, \
             `hash_seed`",
        ),
        (
            error::<MemoryConfig>(json!({ "max_keys": 0 })),
            "MemoryConfig::max_keys: the value is 0, allowed is 1 to",
        ),
        (
            error::<MemoryConfig>(json!({ "max_keys": "many" })),
            "MemoryConfig::max_keys: invalid type: string \"many\", expected u64; allowed is 1 \
             to 18446744073709551615",
        ),
        (
            error::<Resilience>(json!({ "deadline": 50 })),
            "Resilience::deadline: invalid type: integer `50`, expected a string; allowed is 1ms to \
             1h, as a whole number and a unit (ns, us, ms, s, min, h, d), such as 50ms, or off",
        ),
        (
            error::<Resilience>(json!({ "deadline": "2h" })),
            "Resilience::deadline: the value is \"2h\", allowed is 1ms to 1h",
        ),
        (
            error::<Resilience>(json!({ "breaker": { "slow": "40 parsecs" } })),
            "Resilience::breaker: BreakerConfig::slow: the value is \"40 parsecs\", allowed is 1ms to",
        ),
        (
            error::<Resilience>(json!({ "breaker": { "failures_percent": 0 } })),
            "BreakerConfig::failures_percent: the value is 0, allowed is 1 to 100",
        ),
        (
            error::<Resilience>(json!({ "instances": 0 })),
            "Resilience::instances: the value is 0, allowed is 1 to",
        ),
        (
            error::<Headers>(json!({ "x_ratelimit": "days" })),
            "Headers::x_ratelimit: unknown variant `days`, expected `seconds` or `epoch`, or \
             off",
        ),
    ] {
        assert!(message.contains(expected), "{message}\n{expected}");
    }
}

/// A value of JSON cannot repeat a field: this is a test of texts.
#[test]
fn a_field_that_is_set_twice_is_an_error_that_names_it() {
    let error = |text| serde_json::from_str::<Resilience>(text).unwrap_err().to_string();
    let message = error(r#"{ "instances": 3, "deadline": "50ms", "instances": 3 }"#);
    assert!(message.contains("Resilience::instances: duplicate field `instances`"), "{message}");
    let message = error(r#"{ "breaker": { "slow": "40ms", "slow": "30ms" } }"#);
    assert!(message.contains("BreakerConfig::slow: duplicate field `slow`"), "{message}");
}

#[test]
fn the_secret_of_headers_is_read_and_never_written() {
    for headers in [
        Headers::default(),
        Headers::none(),
        Headers::none().draft11().x_ratelimit(Reset::Epoch),
        Headers::none().x_ratelimit(Reset::Seconds),
    ] {
        assert_eq!(round_trip(&headers), headers);
    }
    let secret = "0123456789abcdef0000000000000007";
    let headers: Headers = serde_json::from_value(json!({ "partition_secret": secret })).unwrap();
    assert_eq!(
        headers,
        Headers::default().partition_secret(0x0123_4567_89ab_cdef_0000_0000_0000_0007)
    );
    assert_eq!(written(&headers)["partition_secret"], json!("redacted"));
    for wrong in [json!("redacted"), json!("4711"), json!(4711), json!({ "x": 4711 })] {
        let message = error::<Headers>(json!({ "partition_secret": wrong }));
        assert!(message.starts_with("Headers::partition_secret: "), "{message}");
        assert!(!message.contains("4711"), "{message}");
        assert!(message.contains("32 hexadecimal digits"), "{message}");
    }
}

#[cfg(feature = "redis")]
mod redis {
    use plimsoll::RedisConfig;

    use super::*;

    #[test]
    fn configurations_are_read_as_they_were_written() {
        let prefix = "[!-z|~]{1,64}";
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        let configs = (prefix, 1..=64_usize, flags, durations(), durations()).prop_map(
            |(prefix, connections, (plain, batching, lazy), connect, response)| {
                RedisConfig::default()
                    .prefix(prefix)
                    .connections(connections)
                    .plain_keys(plain)
                    .batching(batching)
                    .lazy(lazy)
                    .connect_timeout(connect)
                    .response_timeout(response)
            },
        );
        seed::property("redis settings", ProptestConfig::with_cases(200), configs, |config| {
            let read = round_trip(&config);
            prop_assert_eq!(format!("{read:?}"), format!("{config:?}"));
            Ok(())
        });
    }

    #[test]
    fn secrets_are_read_and_never_written() {
        let secret = json!({ "secret": "00000000000000010000000000000002" });
        let config: RedisConfig = serde_json::from_value(secret).unwrap();
        let config = config.client_certificate("certificate", "private key");
        let data = written(&config);
        assert_eq!(data["secret"], json!("redacted"));
        assert!(!data.to_string().contains("private key"), "{data}");
        // What was redacted is not taken for the default, which would give every key another name.
        let message = error::<RedisConfig>(data);
        assert!(message.starts_with("RedisConfig::secret: "), "{message}");
        for wrong in [json!("4711"), json!(4711), json!([4711, 4712])] {
            let message = error::<RedisConfig>(json!({ "secret": wrong }));
            assert!(!message.contains("4711"), "{message}");
            assert!(message.contains("allowed is 32 hexadecimal digits"), "{message}");
        }
    }

    #[test]
    fn an_error_names_the_field_the_value_and_what_is_allowed() {
        for (data, expected) in [
            (
                json!({ "connections": 65 }),
                "RedisConfig::connections: the value is 65, allowed is 1 to 64",
            ),
            (json!({ "connections": -1 }), "RedisConfig::connections: invalid value: integer `-1`"),
            (
                json!({ "url": "redis://x" }),
                "RedisConfig::url: unknown field `url`, expected one of `prefix`,",
            ),
            (
                json!({ "prefix": "a b" }),
                "RedisConfig::prefix: the value is \"a b\", allowed is 1 to 64",
            ),
            (
                json!({ "connect_timeout": "2h" }),
                "RedisConfig::connect_timeout: the value is \"2h\", allowed is 1ms to 1h",
            ),
        ] {
            let message = error::<RedisConfig>(data);
            assert!(message.contains(expected), "{message}\n{expected}");
        }
    }
}

/// The settings of an application, as it reads them from a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    search: Quota,
    on_failure: OnFailure,
    memory: MemoryConfig,
    resilience: Resilience,
}

#[test]
fn an_application_has_them_in_its_own_settings() {
    let file = r#"{
        "search": "100/min token-bucket(20)",
        "on_failure": "deny",
        "memory": { "max_keys": 50000 },
        "resilience": { "deadline": "20ms", "instances": 4, "breaker": { "open": "2s" } }
    }"#;
    let settings: Settings = serde_json::from_str(file).unwrap();
    assert_eq!(settings.search.algorithm(), Algorithm::TokenBucket { burst: 20 });
    assert_eq!(settings.on_failure, OnFailure::Deny);
    assert_eq!(written(&settings.memory)["max_keys"], json!(50_000));
    let resilience = written(&settings.resilience);
    assert_eq!(resilience["deadline"], json!("20ms"));
    assert_eq!(resilience["breaker"]["open"], json!("2s"));
    assert_eq!(resilience["breaker"]["slow"], json!("40ms"), "the default");
}

#[test]
fn a_concurrency_limit_is_a_text_too() {
    let quota = |text: &str| text.parse::<Quota>();
    for (text, written) in [
        ("20 concurrent expires(30s)", "20 concurrent expires(30s)"),
        ("20 concurrent", "20 concurrent expires(30s)"),
        ("1_000  concurrent  expires(2min)", "1000 concurrent expires(2min)"),
    ] {
        assert_eq!(quota(text).expect("valid").to_string(), written);
        assert_eq!(quota(written).expect("valid"), quota(text).expect("valid"));
    }
    for (text, word) in [
        ("20 concurrent expires(10ms)", "allowed is 1 s to 400 days"),
        ("20 concurrent expires(30)", "did you mean \"20 concurrent expires(30s)\"?"),
        ("20 concurrent expires(30s) more", "\"more\" is a word too many"),
        ("20 concurrent leased(1s)", "\"leased(1s)\" is not an expiry"),
        ("0 concurrent", "limit is 0, allowed is 1 to"),
        ("0 concurrent expires(30s)", "limit is 0, allowed is 1 to"),
        ("20/min concurrent", "\"20/min\" is not a limit"),
    ] {
        let error = quota(text).expect_err(text).to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
    let zero = std::panic::catch_unwind(|| Quota::concurrent(0)).expect_err("no unit");
    let message = zero.downcast_ref::<&str>().expect("a message");
    assert_eq!(*message, "a limit of 0 units: allowed is 1 to 2147483648");
    let jobs = Quota::concurrent(20);
    assert!(jobs.leased(Duration::from_millis(500)).is_err());
    assert!(jobs.with_algorithm(Algorithm::FixedWindow).is_err());
    assert!(Quota::per_minute(20).expires(Duration::from_secs(30)).is_err());
    assert_ne!(jobs, Quota::new(20, Duration::from_secs(30)).expect("valid"));
    assert!(!Quota::per_minute(20).is_concurrent() && jobs.is_concurrent());
}
