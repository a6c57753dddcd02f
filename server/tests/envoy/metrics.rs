//! The metrics, in the names of envoyproxy/ratelimit's exporter.

use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
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
        descriptors:
          - key: subject
            rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: plain
    descriptors:
      - key: path
        value: /own/*
        rate_limit: { unit: minute, requests_per_unit: 10 }
      - key: path
        value: /shared/*
        share_threshold: true
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

/// Clients send the values of descriptors, so a value without a limit of its own is in no label.
#[test]
fn a_client_that_invents_values_makes_no_metrics() {
    let long = "\u{e9}:".repeat(20_000);
    let text = measured(LIMITS, async |service| {
        for value in ["x", "y", &long] {
            service.says("shop", &format!("detailed={value}")).await;
            service.says("shop", &format!("route={value} method=GET subject=1")).await;
            service.says("shop", &format!("plain={value} path=/own/{value}")).await;
            service.says("shop", &format!("plain={value} path=/shared/{value}")).await;
            // Limits that a request brings along are counted together, whatever they are.
            let own = own_limit(&format!("own={value}"), 10, RateLimitUnit::Day);
            service.answer("shop", [own]).await;
        }
    });
    let name = "ratelimit_service_rate_limit_total_hits";
    let labels = [
        r#"key1="detailed""#,
        r#"key1="route",key2="method""#,
        r#"key1="plain",key2="path_/own/*""#,
        r#"key1="plain",key2="path_/shared/*""#,
        r#"key1="override""#,
    ];
    for labels in labels {
        assert_has(&text, &format!("{name}{{domain=\"shop\",{labels}}} 3"));
    }
    assert_eq!(text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count(), 5);
}
