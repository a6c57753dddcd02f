//! Cases of `test/service`, `src/service` and `test/server` of envoyproxy/ratelimit: reloads, modes, errors and
//! dynamic metadata.

use std::fs;

use Says::{Free, Over};
use envoy_types::pb::{
    envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::rate_limit_response::{Code, rate_limit::Unit::Minute},
    },
    google::protobuf::{Value, value::Kind},
};
use plimsoll::{Limiter, Resilience, error::ErrorKind};
use plimsoll_server::envoy::{EnvoyConfig, EnvoyOptions};
use plimsoll_testing::servers::directory;
use serde_json::json;

use crate::{
    limits_of_requests::Broken,
    metrics::{assert_has, measured_with},
    support::{Says, Service, descriptor, hits, request},
};

/// A domain with the limits `foo` and `hello` of one request a minute, with these fields.
fn two_limits(first: &str, second: &str) -> String {
    format!(
        "
domain: different-domain
descriptors:
  - key: foo
    rate_limit: {{ unit: minute, requests_per_unit: 1 }}
    {first}
  - key: hello
    rate_limit: {{ unit: minute, requests_per_unit: 1 }}
    {second}
"
    )
}

const ONE_LIMIT: &str = "
domain: different-domain
descriptors:
  - key: foo
    value: bar
    rate_limit: { unit: minute, requests_per_unit: 10 }
";

#[test]
fn a_reload_acts_on_the_next_request_and_a_failed_one_changes_nothing() {
    let folder = directory();
    let file = folder.join("limits.yaml");
    fs::write(&file, "domain: test-domain\ndescriptors: [{ key: other }]\n").unwrap();
    let service = || Service::of(EnvoyConfig::load([&folder], EnvoyOptions::default()).unwrap());
    let text = measured_with(service, async |service| {
        let decided = service.decide("test-domain", &["hello=world"]).await;
        assert_eq!(decided, (Code::Ok, vec![Free]));
        fs::write(&file, ONE_LIMIT).unwrap();
        assert!(service.envoy.reload().unwrap());
        service.answer("different-domain", [hits("foo=bar", 10)]).await;
        let decided = service.decide("different-domain", &["foo=bar", "hello=world"]).await;
        assert_eq!(decided, (Code::OverLimit, vec![Over(10, Minute), Free]));
        fs::write(&file, ONE_LIMIT.replace("value", "values")).unwrap();
        assert!(service.envoy.reload().is_err());
        // The limits stay, and the statuses are in the order of the request.
        let decided = service.decide("different-domain", &["hello=world", "foo=bar"]).await;
        assert_eq!(decided, (Code::OverLimit, vec![Free, Over(10, Minute)]));
    });
    for line in [
        "ratelimit_service_config_load_success 2",
        "ratelimit_service_config_load_error 1",
        "ratelimit_service_global_shadow_mode 0",
    ] {
        assert_has(&text, line);
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_service_that_is_a_shadow_counts_the_denials_that_it_admits() {
    let (shadow, quota) = ("shadow_mode: true", "quota_mode: true");
    for (is_shadow, first, second, code, over, count) in [
        (true, "", "", Code::Ok, [true, true], 1),
        (true, quota, quota, Code::Ok, [true, true], 1),
        (true, "", quota, Code::Ok, [true, true], 1),
        (false, shadow, shadow, Code::Ok, [false, false], 0),
        (false, shadow, "", Code::OverLimit, [false, true], 0),
        (false, "", "", Code::OverLimit, [true, true], 0),
    ] {
        let options = EnvoyOptions { shadow_mode: is_shadow, ..EnvoyOptions::default() };
        let service = || Service::with(&two_limits(first, second), options);
        let text = measured_with(service, async |service| {
            let descriptors = ["foo=bar", "hello=world"];
            let (before, _) = service.decide("different-domain", &descriptors).await;
            assert_eq!(before, Code::Ok);
            let (decided, says) = service.decide("different-domain", &descriptors).await;
            let is_over = |says: &Says| matches!(says, Over(1, Minute));
            assert_eq!((decided, [is_over(&says[0]), is_over(&says[1])]), (code, over), "{says:?}");
        });
        assert_has(&text, &format!("ratelimit_service_global_shadow_mode {count}"));
    }
}

#[test]
fn mistakes_and_failures_of_the_store_are_counted_apart() {
    let service = || {
        let config = EnvoyConfig::from_text("limits.yaml", ONE_LIMIT, EnvoyOptions::default());
        let store = Broken(ErrorKind::Unavailable);
        Service::over(config.unwrap(), Limiter::with_resilience(store, Resilience::none()))
    };
    let text = measured_with(service, async |service| {
        for (request, code) in [
            (request("", [descriptor("foo=bar")]), tonic::Code::InvalidArgument),
            (request("different-domain", []), tonic::Code::InvalidArgument),
            (request("different-domain", [descriptor("foo=bar")]), tonic::Code::Unavailable),
        ] {
            assert_eq!(service.ask(request).await.unwrap_err().code(), code);
        }
    });
    for line in [
        "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 2",
        "ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"} 1",
        "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 3",
    ] {
        assert_has(&text, line);
    }
}

const METADATA: &str = "
domain: quota-domain
descriptors:
  - key: regular
    rate_limit: { unit: hour, requests_per_unit: 9 }
    metadata: { name: service_1 }
  - key: used_up
    rate_limit: { unit: hour, requests_per_unit: 1 }
    metadata: { name: service_1 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 9 }
    metadata: { name: service_2 }
  - key: used_quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
    metadata: { name: service_2 }
  - key: another_quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 9 }
    metadata: { name: service_3 }
  - key: other_field
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 9 }
    metadata: { some_other_name: service_2 }
  - key: without
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 9 }
";

fn as_json(value: &Value) -> serde_json::Value {
    match value.kind.as_ref().expect("a kind") {
        Kind::NullValue(_) => serde_json::Value::Null,
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => json!(text),
        Kind::BoolValue(is_true) => json!(is_true),
        Kind::ListValue(list) => list.values.iter().map(as_json).collect(),
        Kind::StructValue(fields) => {
            fields.fields.iter().map(|(name, value)| (name.clone(), as_json(value))).collect()
        }
    }
}

/// Returns the code of a request after one hit of each descriptor in `used`, and its dynamic metadata.
async fn dynamic_metadata(
    options: EnvoyOptions,
    used: &[&str],
    (domain, hits_addend): (&str, u32),
    descriptors: Vec<RateLimitDescriptor>,
) -> (Code, serde_json::Value) {
    let options = EnvoyOptions { dynamic_metadata: true, ..options };
    let service = Service::with(METADATA, options);
    for used in used {
        service.decide(domain, &[used]).await;
    }
    let mut request = request(domain, descriptors);
    request.hits_addend = hits_addend;
    let response = service.ask(request).await.unwrap();
    let fields = response.dynamic_metadata.clone().expect("dynamic metadata");
    (response.overall_code(), as_json(&Value { kind: Some(Kind::StructValue(fields)) }))
}

#[tokio::test]
async fn dynamic_metadata_has_the_request_and_the_metadata_of_the_limits_that_pass() {
    let of_each = EnvoyOptions::default;
    let of_all = || EnvoyOptions { quota_mode: true, ..EnvoyOptions::default() };
    let (known, unknown) = ("quota-domain", "fake-domain");
    let named = |name: &str| Some(json!({ "name": name }));
    for (options, used, request, asked, code, metadata) in [
        (of_each(), &[][..], (unknown, 0), &["key1=val1"][..], Code::Ok, None),
        (of_each(), &[], (known, 0), &["quota=a"], Code::Ok, named("service_2")),
        // A limit that denies shows nothing, and the first of those that pass is taken.
        (
            of_each(),
            &["used_up=a"],
            (known, 0),
            &["used_up=a", "quota=a", "another_quota=a"],
            Code::OverLimit,
            named("service_2"),
        ),
        (of_each(), &[], (known, 5), &["without=a"], Code::Ok, None),
        // In quota mode, one limit passes and the other denies.
        (
            of_all(),
            &["used_quota=a"],
            (known, 0),
            &["regular=a", "used_quota=a"],
            Code::Ok,
            named("service_1"),
        ),
        // Both pass, with fields of different names, and of one name.
        (
            of_all(),
            &[],
            (known, 0),
            &["regular=a", "other_field=a"],
            Code::Ok,
            Some(json!({ "name": "service_1", "some_other_name": "service_2" })),
        ),
        (of_all(), &[], (known, 0), &["regular=a", "quota=a"], Code::Ok, named("service_1")),
    ] {
        let descriptors: Vec<_> = asked.iter().map(|entry| json!({ "entries": [entry] })).collect();
        let mut expected = json!({ "domain": request.0, "descriptors": descriptors });
        if request.1 != 0 {
            expected["hitsAddend"] = json!(f64::from(request.1));
        }
        if let Some(metadata) = metadata {
            expected["metadata"] = metadata;
        }
        let asked = asked.iter().map(|it| descriptor(it)).collect();
        let decided = dynamic_metadata(options, used, request, asked).await;
        assert_eq!(decided, (code, expected));
    }
    // The hits of a descriptor stand beside its entries.
    let asked = vec![hits("without=a", 3)];
    let (_, fields) = dynamic_metadata(of_each(), &[], (known, 0), asked).await;
    let expected = json!([{ "entries": ["without=a"], "hitsAddend": 3.0 }]);
    assert_eq!(fields["descriptors"], expected);
}
