//! The gRPC service.

use envoy_types::pb::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService,
};
use plimsoll::{Error, error::ErrorKind};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{
    decide::EnvoyCheck,
    envoy::{Envoy, EnvoyParts},
    request::{BadRequest, Hits, Limited, Line, lines},
    response::response,
};

/// The reason why a request has no decision.
#[derive(Debug)]
pub(super) enum NotDecided {
    Bad(BadRequest),
    Failed(Error),
}

#[tonic::async_trait]
impl RateLimitService for Envoy {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let decided = self.decide(request.get_ref()).await;
        decided.map(Response::new).map_err(Status::from)
    }
}

impl Envoy {
    /// Decides a request, and counts it.
    ///
    /// # Errors
    ///
    /// Returns an error if the request has a mistake, or if the store cannot answer.
    pub(super) async fn decide(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, NotDecided> {
        let start = Instant::now();
        let decided = self.0.decide_lines(request).await;
        self.0.stats.answered(start.elapsed());
        decided
    }
}

impl EnvoyParts {
    async fn decide_lines(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, NotDecided> {
        let config = self.config.load();
        let lines = lines(request, &config, &self.stats).map_err(|mistake| {
            self.stats.service_error.increment(1);
            NotDecided::Bad(mistake)
        })?;
        let options = &config.options;
        let check = EnvoyCheck {
            limiter: &self.limiter,
            offenders: &self.offenders,
            lines: &lines,
            options,
        };
        let outcomes = check.decide().await.map_err(|error| {
            self.stats.redis_error.increment(1);
            NotDecided::Failed(error)
        })?;
        let is_over = check.is_over(&outcomes);
        for (line, outcome) in lines.iter().zip(&outcomes) {
            if let Line::Limited(Limited { hits: Hits::Spend(hits), is_shadow, stats, .. }) = line {
                outcome.count(*hits, *is_shadow, stats);
            }
        }
        if is_over && options.shadow_mode {
            self.stats.global_shadow_mode.increment(1);
        }
        Ok(response(request, &lines, &outcomes, options, is_over))
    }
}

impl From<NotDecided> for Status {
    /// Returns `UNAVAILABLE` for a store that fails, so that clients tell it from a mistake.
    fn from(reason: NotDecided) -> Self {
        match reason {
            NotDecided::Bad(BadRequest(message)) => Self::invalid_argument(message),
            NotDecided::Failed(error) if error.kind() == ErrorKind::Invalid => {
                Self::failed_precondition(error.to_string())
            }
            NotDecided::Failed(error) => {
                let kind = error.kind().name();
                Self::unavailable(format!(
                    "the {} of the limiter cannot answer ({kind})",
                    error.place()
                ))
            }
        }
    }
}
