//! The metrics, in the names of envoyproxy/ratelimit's exporter.

use envoy_types::pb::envoy::{
    service::ratelimit::v3::rate_limit_response::Code, r#type::v3::RateLimitUnit,
};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::support::{Service, descriptor, hits, own_limit, request};

const LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: shadow
    rate_limit: { unit: minute, requests_per_unit: 1 }
    shadow_mode: true
  - key: detailed
    detailed_metric: true
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        value_to_metric: true
        descriptors:
          - key: subject
            rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: plain
    descriptors:
      - key: path
        value: /api/*
        value_to_metric: true
        rate_limit: { unit: minute, requests_per_unit: 10 }
      - key: path
        value: /own/*
        rate_limit: { unit: minute, requests_per_unit: 10 }
      - key: path
        value: /shared/*
        share_threshold: true
        value_to_metric: true
        rate_limit: { unit: minute, requests_per_unit: 10 }
      - key: path
        value: /all/*
        share_threshold: true
        detailed_metric: true
        rate_limit: { unit: minute, requests_per_unit: 10 }
";

/// Runs a test with metrics of its own, and returns them as text.
pub(crate) fn measured(limits: &str, test: impl AsyncFnOnce(&Service)) -> String {
    measured_with(|| Service::new(limits), test)
}

/// Runs a test of this service with metrics of its own, and returns them as text.
pub(crate) fn measured_with(
    service: impl FnOnce() -> Service,
    test: impl AsyncFnOnce(&Service),
) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            test(&service()).await;
        });
    });
    handle.render()
}

pub(crate) fn assert_has(text: &str, line: &str) {
    assert!(text.lines().any(|it| it == line), "{line}\n{text}");
}

#[test]
fn hits_are_counted_by_limit_and_by_outcome() {
    let text = measured(LIMITS, async |service| {
        for _ in 0..7 {
            service.says("shop", "user=a").await;
        }
        service.answer("shop", [hits("user=a", 3)]).await;
        service.answer("shop", [hits("user=a", 4)]).await;
        service.answer("shop", [descriptor("shadow=a")]).await;
        service.answer("shop", [descriptor("shadow=a")]).await;
        service.says("other", "user=a").await;
        for wrong in [request("", [descriptor("user=a")]), request("shop", [])] {
            assert!(service.ask(wrong).await.is_err());
        }
    });
    let of = |name: &str, key: &str, value: u64| {
        assert_has(
            &text,
            &format!(
                "ratelimit_service_rate_limit_{name}{{domain=\"shop\",key1=\"{key}\"}} {value}"
            ),
        );
    };
    of("total_hits", "user", 14);
    of("within_limit", "user", 10);
    // The hits behind 80% of the limit.
    of("near_limit", "user", 2);
    of("over_limit", "user", 4);
    of("total_hits", "shadow", 2);
    of("over_limit", "shadow", 1);
    of("shadow_mode", "shadow", 1);
    for line in [
        "ratelimit_service_rate_limit_domain_not_found 1",
        "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 2",
        "ratelimit_service_config_load_success 1",
        "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 14",
    ] {
        assert_has(&text, line);
    }
    assert!(text.contains("ratelimit_service_response_time_seconds"), "{text}");
}

#[test]
fn hits_are_counted_under_the_values_that_the_configuration_names() {
    let text = measured(LIMITS, async |service| {
        for descriptor in [
            "detailed=x",
            "detailed=10.0.0.1",
            "route=api method=GET subject=123",
            "plain=x path=/api/a",
            "plain=x path=/own/a",
            "plain=x path=/shared/a",
            "plain=x path=/all/a",
        ] {
            service.says("shop", descriptor).await;
        }
        // Limits that a request brings along are counted under its entries, whatever the limit is.
        for (entries, requests, unit) in [
            ("a=b c=d", 10, RateLimitUnit::Day),
            ("a=b c=d", 42, RateLimitUnit::Hour),
            ("a=b c=e", 42, RateLimitUnit::Hour),
        ] {
            service.answer("shop", [own_limit(entries, requests, unit)]).await;
        }
    });
    let own = |value: &str, number: u64| {
        let labels = format!("key1=\"a_b\",key2=\"c_{value}\"");
        for metric in ["total_hits", "within_limit"] {
            let name = format!("ratelimit_service_rate_limit_{metric}");
            assert_has(&text, &format!("{name}{{domain=\"shop\",{labels}}} {number}"));
        }
    };
    own("d", 2);
    own("e", 1);
    for labels in [
        r#"key1="detailed_x""#,
        r#"key1="detailed_10.0.0.1""#,
        r#"key1="route_api",key2="method_GET""#,
        r#"key1="plain",key2="path_/api/a""#,
        r#"key1="plain",key2="path_/own/*""#,
        r#"key1="plain",key2="path_/shared/*""#,
        r#"key1="plain_x",key2="path_/all/*""#,
    ] {
        let line = format!("ratelimit_service_rate_limit_total_hits{{domain=\"shop\",{labels}}} 1");
        // Shared patterns are shown for their own level; the others are whole under `detailed_metric`.
        assert_has(&text, &line);
    }
}

#[test]
fn a_client_that_invents_values_does_not_fill_the_memory() {
    let text = measured(LIMITS, async |service| {
        for number in 0..5_000 {
            let (code, _) = service.decide("shop", &[&format!("detailed={number}")]).await;
            assert_eq!(code, Code::Ok);
        }
    });
    let lines = text
        .lines()
        .filter(|it| it.starts_with("ratelimit_service_rate_limit_total_hits{"))
        .count();
    assert_eq!(lines, 4_097);
    assert_has(&text, "ratelimit_service_rate_limit_total_hits{domain=\"_other\"} 904");
}

#[test]
fn a_client_that_sends_long_values_does_not_fill_the_memory() {
    let long = |end: &str| format!("{}{end}", "\u{e9}:".repeat(20_000));
    let text = measured(LIMITS, async |service| {
        for end in ["a", "a", "b"] {
            service.says("shop", &format!("detailed={}", long(end))).await;
            let own = own_limit(&format!("own={0} more={0}", long(end)), 10, RateLimitUnit::Day);
            service.answer("shop", [own]).await;
        }
    });
    let longest = text.lines().map(str::len).max().unwrap();
    assert!(longest < 600, "{longest}");
    // Values that differ in their ends are counted apart.
    for key in ["detailed", "own"] {
        let name =
            format!("ratelimit_service_rate_limit_total_hits{{domain=\"shop\",key1=\"{key}_");
        let mut hits: Vec<_> = text.lines().filter(|it| it.starts_with(&name)).collect();
        hits.sort_by_key(|line| line.rsplit(' ').next());
        assert_eq!(hits.len(), 2, "{hits:?}");
        assert!(hits[0].ends_with(" 1") && hits[1].ends_with(" 2"), "{hits:?}");
    }
}
