//! Quotas, algorithms and reactions to failures as serialized data.
#![cfg(feature = "serde")]

use std::{fmt::Debug, time::Duration};

use plimsoll::{Algorithm, OnFailure, Quota};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Reads what was written.
fn round_trip<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_value(written(value)).expect("it is read")
}

fn written<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("it is written")
}

fn error<T: DeserializeOwned + Debug>(data: Value) -> String {
    serde_json::from_value::<T>(data).expect_err("not allowed").to_string()
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
}

#[test]
fn an_error_names_the_value_and_what_is_allowed() {
    for (message, expected) in [
        (
            error::<Quota>(json!("100/fortnight")),
            "quota is \"100/fortnight\", in which \"fortnight\" is",
        ),
        (error::<Quota>(json!("0/min")), "limit is 0, allowed is 1 to 1000000000000"),
        (error::<Quota>(json!("9/min leased(7s)")), "lease is 7s, allowed is 1 ms to 6s for 9/min"),
        (error::<Algorithm>(json!("leaky")), "algorithm is \"leaky\", allowed is sliding-log, "),
        (error::<OnFailure>(json!("close")), "unknown variant `close`, expected one of `allow`"),
    ] {
        assert!(message.contains(expected), "{message}\n{expected}");
    }
}

/// The settings of an application, as it reads them from a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    search: Quota,
    on_failure: OnFailure,
}

#[test]
fn an_application_has_them_in_its_own_settings() {
    let file = r#"{ "search": "100/min token-bucket(20)", "on_failure": "deny" }"#;
    let settings: Settings = serde_json::from_str(file).unwrap();
    assert_eq!(settings.search.algorithm(), Algorithm::TokenBucket { burst: 20 });
    assert_eq!(settings.on_failure, OnFailure::Deny);
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
        ("20 concurrent expires(30)", "\"expires(30)\" is not an expiry"),
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
    assert_ne!(jobs, "20/30s".parse().expect("valid"));
    assert!(!Quota::per_minute(20).is_concurrent() && jobs.is_concurrent());
}
