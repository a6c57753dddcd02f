//! The response to a request.

use envoy_types::pb::{
    envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, RateLimit},
    },
    google::protobuf::Duration as ProtoDuration,
};

use super::{
    dynamic_metadata,
    headers::{self, retry_after, whole_seconds},
    options::EnvoyOptions,
    outcome::LineOutcome,
    request::{Limited, Line},
    unit::Unit,
};

/// Returns the response to a request, with these lines and outcomes.
pub(super) fn response(
    request: &RateLimitRequest,
    lines: &[Line<'_>],
    outcomes: &[LineOutcome],
    options: &EnvoyOptions,
    is_over: bool,
) -> RateLimitResponse {
    let statuses: Vec<_> =
        lines.iter().zip(outcomes).map(|(line, outcome)| status(line, outcome)).collect();
    let code = if is_over && !options.shadow_mode { Code::OverLimit } else { Code::Ok };
    let headers = if options.ratelimit_headers {
        headers::headers(lines, outcomes, code)
    } else {
        Vec::new()
    };
    RateLimitResponse {
        overall_code: code as i32,
        response_headers_to_add: headers,
        statuses,
        dynamic_metadata: dynamic_metadata::of(request, lines, outcomes, options.dynamic_metadata),
        ..RateLimitResponse::default()
    }
}

fn status(line: &Line<'_>, outcome: &LineOutcome) -> DescriptorStatus {
    let ok = DescriptorStatus { code: Code::Ok as i32, ..DescriptorStatus::default() };
    match line {
        Line::Free => ok,
        Line::Unlimited => DescriptorStatus { limit_remaining: u32::MAX, ..ok },
        Line::Limited(limited) => {
            let is_over = !outcome.has_passed && !limited.is_shadow;
            let remaining = outcome.standing.map_or(0, |standing| standing.remaining);
            let reset = reset_after(limited, outcome);
            DescriptorStatus {
                code: if is_over { Code::OverLimit } else { Code::Ok } as i32,
                current_limit: Some(current_limit(limited, outcome)),
                limit_remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
                duration_until_reset: Some(ProtoDuration {
                    seconds: reset.cast_signed(),
                    nanos: 0,
                }),
                quota: None,
            }
        }
    }
}

/// Returns the limit in force. An operator may have set another one than the configuration.
fn current_limit(limited: &Limited<'_>, outcome: &LineOutcome) -> RateLimit {
    let shown = limited.shown.clone();
    let Some(quota) = outcome.quota else { return shown };
    let unit = Unit::of_window(quota.window());
    RateLimit {
        requests_per_unit: u32::try_from(quota.limit()).unwrap_or(u32::MAX),
        unit: unit.map_or(0, |unit| unit.shown() as i32),
        ..shown
    }
}

/// Returns the seconds until all requests of a budget are back, or until a denied line would pass.
fn reset_after(limited: &Limited<'_>, outcome: &LineOutcome) -> u64 {
    let Some(standing) = &outcome.standing else {
        // A limit of 0 requests never passes. Its unit says when a client may look again.
        return Unit::of_shown(limited.shown.unit).map_or(1, |unit| unit.window().as_secs());
    };
    if outcome.has_passed { whole_seconds(standing.reset_after) } else { retry_after(standing) }
}
