//! The gRPC service.

use envoy_types::pb::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService,
};
use plimsoll::Error;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{
    decide::Decider,
    outcome::LineOutcome,
    request::{BadRequest, Hits as LineHits, Limited, Line, lines},
    response::response,
    shared::Shared,
    stats::Hits,
};

/// The implementation of `envoy.service.ratelimit.v3.RateLimitService`.
#[derive(Debug, Clone)]
pub struct EnvoyService(pub(super) std::sync::Arc<Shared>);

/// The reason why a request has no decision.
#[derive(Debug)]
pub(super) enum NotDecided {
    Bad(BadRequest),
    Failed(Error),
}

#[tonic::async_trait]
impl RateLimitService for EnvoyService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let decided = decide(&self.0, request.get_ref()).await;
        decided.map(Response::new).map_err(Status::from)
    }
}

/// Decides a request, and counts it.
///
/// # Errors
///
/// Returns an error if the request has a mistake, or if the store cannot answer.
pub(super) async fn decide(
    shared: &Shared,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, NotDecided> {
    let start = Instant::now();
    let decided = decide_lines(shared, request).await;
    shared.stats.answered(start.elapsed());
    decided
}

async fn decide_lines(
    shared: &Shared,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, NotDecided> {
    let config = shared.config.load();
    let lines = lines(request, &config, &shared.stats).map_err(|mistake| {
        shared.stats.service_error.increment(1);
        NotDecided::Bad(mistake)
    })?;
    let options = &config.options;
    let decider = Decider {
        limiter: &shared.limiter,
        activity: shared.activity.as_ref(),
        lines: &lines,
        how: options.decide,
        on_failure: options.on_failure,
        is_quota_mode: options.quota_mode,
        has_strict_looks: options.strict_looks,
    };
    let outcomes = decider.decide().await.map_err(|error| {
        shared.stats.redis_error.increment(1);
        NotDecided::Failed(error)
    })?;
    let is_over = decider.is_over(&outcomes);
    count(&lines, &outcomes, options.near_limit_percent);
    if is_over && options.shadow_mode {
        shared.stats.global_shadow_mode.increment(1);
    }
    Ok(response(request, &lines, &outcomes, options, is_over))
}

/// Counts the hits of each limit.
fn count(lines: &[Line<'_>], outcomes: &[LineOutcome], near_limit_percent: u8) {
    for (line, outcome) in lines.iter().zip(outcomes) {
        let Line::Limited(Limited { hits: LineHits::Spend(hits), is_shadow, stats, .. }) = line
        else {
            continue;
        };
        if outcome.has_passed && outcome.charged == 0 {
            stats.count_uncharged(*hits);
            continue;
        }
        let hits = Hits {
            hits: *hits,
            has_passed: outcome.has_passed,
            is_shadow: *is_shadow,
            limit: outcome.quota.map_or(0, |quota| quota.limit()),
            remaining: outcome.standing.map_or(0, |standing| standing.remaining()),
        };
        stats.count(hits, near_limit_percent);
    }
}

impl From<NotDecided> for Status {
    /// Returns `UNAVAILABLE` for a store that fails, so that clients tell it from a mistake.
    fn from(reason: NotDecided) -> Self {
        match reason {
            NotDecided::Bad(BadRequest(message)) => Self::invalid_argument(message),
            NotDecided::Failed(error) if error.is_invalid() => {
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
