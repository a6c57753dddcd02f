//! Metrics, with the names that the Prometheus exporter of envoyproxy/ratelimit gives them.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// The counters of the service.
#[derive(Debug)]
pub(super) struct Stats {
    pub(super) redis_error: Counter,
    pub(super) service_error: Counter,
    pub(super) config_load_success: Counter,
    pub(super) config_load_error: Counter,
    /// Has no counterpart in envoyproxy/ratelimit.
    pub(super) kept_domains: Gauge,
    pub(super) global_shadow_mode: Counter,
    pub(super) domain_not_found: Counter,
    total_requests: Counter,
    response_time: Histogram,
}

/// The counters of a limit.
#[derive(Debug)]
pub(super) struct RuleStats {
    pub(super) total_hits: Counter,
    pub(super) over_limit: Counter,
    pub(super) near_limit: Counter,
    pub(super) within_limit: Counter,
    pub(super) shadow_mode: Counter,
}

impl Stats {
    pub(super) fn new() -> Self {
        let method = "ShouldRateLimit";
        let errors = "ratelimit_service_should_rate_limit_error";
        Self {
            redis_error: counter!(errors, "err_type" => "redis_error"),
            service_error: counter!(errors, "err_type" => "service_error"),
            config_load_success: counter!("ratelimit_service_config_load_success"),
            config_load_error: counter!("ratelimit_service_config_load_error"),
            kept_domains: gauge!("plimsoll_server_envoy_kept_domains"),
            global_shadow_mode: counter!("ratelimit_service_global_shadow_mode"),
            domain_not_found: counter!("ratelimit_service_rate_limit_domain_not_found"),
            total_requests: counter!("ratelimit_service_total_requests", "grpc_method" => method),
            response_time: histogram!("ratelimit_service_response_time_seconds", "grpc_method" => method),
        }
    }

    /// Records an answer.
    pub(super) fn answered(&self, after: Duration) {
        self.total_requests.increment(1);
        self.response_time.record(after.as_secs_f64());
    }
}

impl RuleStats {
    /// Creates the counters of a limit by its domain and the names of its descriptors. The first two names are
    /// the labels.
    pub(super) fn new(domain: &str, names: &[String]) -> Self {
        let names = [domain].into_iter().chain(names.iter().map(|name| &**name));
        let labels = ["domain", "key1", "key2"].into_iter().zip(names);
        // The separators of statsd become underscores, as in envoyproxy/ratelimit.
        let labels: Vec<_> = labels.map(|(key, it)| (key, it.replace([':', '|'], "_"))).collect();
        Self {
            total_hits: counter!("ratelimit_service_rate_limit_total_hits", &labels),
            over_limit: counter!("ratelimit_service_rate_limit_over_limit", &labels),
            near_limit: counter!("ratelimit_service_rate_limit_near_limit", &labels),
            within_limit: counter!("ratelimit_service_rate_limit_within_limit", &labels),
            shadow_mode: counter!("ratelimit_service_rate_limit_shadow_mode", &labels),
        }
    }
}
