//! Metrics for Prometheus.

use std::time::Duration;

use axum::{Router, response::IntoResponse, routing::get};
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tokio::{task::JoinSet, time::sleep};

/// Upper bounds of the buckets of histograms, in seconds. The deadline of a check is 0.05 s.
const BUCKETS: [f64; 9] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0];

/// The interval in which the samples of histograms are put into buckets, so that they need no more memory.
const UPKEEP: Duration = Duration::from_secs(5);

/// The recorder of the metrics of this process, and the task that maintains it.
pub(crate) struct Metrics {
    handle: PrometheusHandle,
    _upkeep: JoinSet<()>,
}

impl Metrics {
    /// Records the metrics of this process. It comes before all parts that have metrics.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has a recorder already.
    pub(crate) fn install() -> Result<Self, BuildError> {
        let handle = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
        describe();
        let maintained = handle.clone();
        let mut upkeep = JoinSet::new();
        upkeep.spawn(async move {
            loop {
                sleep(UPKEEP).await;
                maintained.run_upkeep();
            }
        });
        Ok(Self { handle, _upkeep: upkeep })
    }

    /// Returns the route `/metrics`.
    pub(crate) fn router(&self) -> Router {
        let handle = self.handle.clone();
        let metrics = get(move || async move {
            let content_type = "text/plain; version=0.0.4; charset=utf-8";
            ([(CONTENT_TYPE, content_type)], handle.render()).into_response()
        });
        Router::new().route("/metrics", metrics)
    }
}

fn describe() {
    metrics::describe_gauge!("plimsoll_server_connections", "Open connections of a listener.");
    metrics::describe_counter!(
        "plimsoll_server_accepted_connections_total",
        "Connections that a listener has accepted."
    );
    metrics::describe_gauge!(
        "plimsoll_server_envoy_kept_domains",
        "Domains of envoyproxy/ratelimit that no file has any more, and whose limits stay in force."
    );
    let version = env!("CARGO_PKG_VERSION");
    metrics::describe_gauge!("plimsoll_server_info", "The version of the service. The value is 1.");
    metrics::gauge!("plimsoll_server_info", "version" => version).set(1.0);
}
