//! The response to a [decision](Decision).

use axum::response::{IntoResponse, Response};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use plimsoll::{
    Decision,
    decision::{Denied, Outcome, Outcomes},
    layer::Rejection,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    Api,
    charges::{Line, Lines},
    problem::PROBLEM_JSON,
    receipts::Token,
};

/// The [decision](Decision) on a request that is admitted, or that was only looked at.
#[derive(Serialize)]
pub(super) struct Admitted<'a> {
    allowed: bool,
    /// The kind of store that decided.
    source: &'static str,
    charges: Vec<ChargeAnswer<'a>>,
    #[serde(flatten)]
    token: Option<Token>,
}

/// The decision on one charge. All times are in seconds.
#[derive(Serialize)]
struct ChargeAnswer<'a> {
    policy: &'a str,
    outcome: &'static str,
    #[serde(flatten)]
    standing: Option<StandingAnswer>,
}

#[derive(Serialize)]
struct StandingAnswer {
    quota: String,
    granted: u64,
    limit: u64,
    remaining: u64,
    next_after: f64,
    reset_after: f64,
    retry_after: Option<f64>,
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Returns the response to a check: status 200, or the status of a denial.
pub(super) fn of_check(api: &Api, lines: &Lines, decision: &Decision<'_>) -> Response {
    match decision {
        Decision::Allowed(_) => admitted(api, lines, decision, None),
        Decision::Denied(denied) => self::denied(api, lines, denied),
    }
}

/// Returns the response with status 200 to a decision, whether it admits the charges or not.
pub(super) fn admitted(
    api: &Api,
    lines: &Lines,
    decision: &Decision<'_>,
    token: Option<Token>,
) -> Response {
    let body = Admitted {
        allowed: decision.is_allowed(),
        source: decision.source().name(),
        charges: answers(lines, decision.outcomes()),
        token,
    };
    json(&body, api.parts().headers.of(decision))
}

/// Returns the response to charges whose policies are all switched off.
pub(super) fn switched_off(lines: &Lines) -> Response {
    let charges = lines.0.iter().map(|line| answer(line, None)).collect();
    let body = Admitted { allowed: true, source: "none", charges, token: None };
    json(&body, HeaderMap::new())
}

/// Returns the response of a rate limit layer to a denied request, with the decision on each charge in its
/// problem document.
pub(super) fn denied(api: &Api, lines: &Lines, denied: &Denied<'_>) -> Response {
    let response = Rejection::of(denied, &api.parts().headers).to_response();
    let (mut parts, document) = response.into_parts();
    let mut document: Map<String, Value> = serde_json::from_str(&document).unwrap_or_default();
    let charges = answers(lines, denied.outcomes());
    document.insert("source".into(), denied.source().name().into());
    document.insert("retry_after".into(), denied.retry_after().map(|it| it.as_secs_f64()).into());
    document.insert("charges".into(), serde_json::to_value(charges).unwrap_or_default());
    parts.headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    let body = serde_json::to_vec(&document).unwrap_or_default();
    Response::from_parts(parts, body.into())
}

/// Returns a response with status 200, which no cache may store.
pub(super) fn json(body: &impl Serialize, headers: HeaderMap) -> Response {
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = (StatusCode::OK, headers, body).into_response();
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

fn answers<'a>(lines: &'a Lines, outcomes: Outcomes<'_>) -> Vec<ChargeAnswer<'a>> {
    let lines = lines.0.iter();
    lines.map(|line| answer(line, { outcomes }.find(|it| line.is_of(it.charge())))).collect()
}

fn answer<'a>(line: &'a Line, outcome: Option<Outcome<'_>>) -> ChargeAnswer<'a> {
    let policy = line.registered.policy().name();
    let Some(outcome) = outcome else {
        return ChargeAnswer { policy, outcome: "switched_off", standing: None };
    };
    let standing = outcome.standing();
    let standing = StandingAnswer {
        quota: outcome.charge().quota().to_string(),
        granted: outcome.granted(),
        limit: standing.limit,
        remaining: standing.remaining,
        next_after: standing.next_after.as_secs_f64(),
        reset_after: standing.reset_after.as_secs_f64(),
        retry_after: standing.retry_after.map(|wait| wait.as_secs_f64()),
    };
    ChargeAnswer { policy, outcome: outcome.name(), standing: Some(standing) }
}
