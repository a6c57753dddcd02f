//! The health of the service: over HTTP, and as `grpc.health.v1.Health`.
//!
//! The service is healthy while it can decide. If the shared store cannot answer, it decides by itself, and so
//! stays healthy: an instance that is taken out of service for an outage of Redis would make the outage one of all
//! its clients.

use axum::{Router, extract::State, routing::get};
use http::StatusCode;
use tonic::service::Routes;
use tonic_health::{
    ServingStatus,
    server::{HealthReporter, HealthService},
};

use crate::listen::{Phase, Phases};

/// The gRPC services whose health is reported: the whole service, and the rate limit service under the names
/// that clients of envoyproxy/ratelimit ask for.
const SERVICES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// The health of the service. Clones share it.
#[derive(Clone)]
pub(crate) struct Health {
    phases: Phases,
    reporter: HealthReporter,
}

impl Health {
    pub(crate) async fn new(phases: Phases) -> Self {
        let reporter = HealthReporter::new();
        for service in SERVICES {
            reporter.set_service_status(service, ServingStatus::NotServing).await;
        }
        Self { phases, reporter }
    }

    /// Begins a phase, and reports it. In the last one, streams of the health end.
    pub(crate) async fn begin(&self, phase: Phase) {
        self.phases.begin(phase);
        let is_ready = phase == Phase::Ready;
        let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        let mut reporter = self.reporter.clone();
        for service in SERVICES {
            if phase == Phase::Closing {
                reporter.clear_service_status(service).await;
            } else {
                reporter.set_service_status(service, status).await;
            }
        }
    }

    /// Returns the gRPC service.
    pub(crate) fn routes(&self) -> Routes {
        let service = HealthService::from_health_reporter(self.reporter.clone());
        Routes::new(tonic_health::pb::health_server::HealthServer::new(service))
    }

    /// Returns the route `/healthcheck`: status 200 and `OK`, or 503 while the service is not ready.
    pub(crate) fn router(&self) -> Router {
        let health = get(|State(phases): State<Phases>| async move {
            if phases.now() == Phase::Ready {
                (StatusCode::OK, "OK\n")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
            }
        });
        Router::new().route("/healthcheck", health).with_state(self.phases.clone())
    }
}
