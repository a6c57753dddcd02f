//! Cases of `test/service`, `src/service` and `test/server` of envoyproxy/ratelimit: reloads, modes and errors.

use std::fs;

use Says::{Free, Over};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, rate_limit::Unit::Minute,
};
use plimsoll::{Limiter, Resilience, error::ErrorKind};
use plimsoll_server::envoy::{EnvoyConfig, EnvoyOptions};
use plimsoll_testing::servers::directory;

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
