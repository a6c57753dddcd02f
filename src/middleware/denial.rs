//! The responses that refuse: 429, 403 and 503, as problem documents (RFC 9457).

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
};

use super::headers::{push_number, seconds_up, value, window_seconds};
use crate::{decision::Denied, random, store::Verdict};

const TYPES: &str = "https://iana.org/assignments/http-problem-types#";
const OVER_CAPACITY: &str = "https://docs.rs/tollgate/latest/tollgate/#cost-over-capacity";

/// Whole seconds for `Retry-After`: the wait rounded up, and not before the effective window that
/// `RateLimit` shows has ended. `None` if waiting does not help.
pub(super) fn retry_after(denied: &Denied<'_>) -> Option<u64> {
    let standing = denied.binding()?.standing();
    Some(seconds_up(standing.retry_after?).max(window_seconds(standing)))
}

/// The default response to a denial.
pub(super) fn problem(denied: &Denied<'_>, retry_after: Option<u64>) -> Response<Bytes> {
    let violated = denied
        .outcomes()
        .iter()
        .filter(|outcome| !outcome.charge().is_shadow() && outcome.verdict() != Verdict::Passed);
    let mut body = Vec::with_capacity(320);
    let status = match retry_after {
        Some(seconds) => {
            open(&mut body, TYPES, "quota-exceeded", "Quota exceeded", 429);
            body.extend_from_slice(b"The quota allows this request again in ");
            push_number(&mut body, seconds);
            body.extend_from_slice(b" seconds.");
            StatusCode::TOO_MANY_REQUESTS
        }
        None => {
            open(&mut body, OVER_CAPACITY, "", "Cost over capacity", 403);
            body.extend_from_slice(
                b"This request costs more than the quota can ever hold: waiting does not help.",
            );
            StatusCode::FORBIDDEN
        }
    };
    body.extend_from_slice(b"\",\"violated-policies\":[");
    for (index, outcome) in violated.enumerate() {
        // Names are made of characters that need no escape.
        body.extend_from_slice(if index == 0 { b"\"" } else { b",\"" });
        body.extend_from_slice(outcome.policy().name().as_bytes());
        body.push(b'"');
    }
    body.extend_from_slice(b"]}");
    response(status, body)
}

/// A denial in plain text.
pub(super) fn text(retry_after: Option<u64>) -> Response<Bytes> {
    let mut body = Vec::with_capacity(64);
    let status = match retry_after {
        Some(seconds) => {
            body.extend_from_slice(b"Too many requests. Retry in ");
            push_number(&mut body, seconds);
            body.extend_from_slice(b" s.\n");
            StatusCode::TOO_MANY_REQUESTS
        }
        None => {
            body.extend_from_slice(b"This request costs more than the quota can ever hold.\n");
            StatusCode::FORBIDDEN
        }
    };
    plain(response(status, body))
}

/// As [`unavailable`], in plain text.
pub(super) fn unavailable_text(jitter: Duration) -> Response<Bytes> {
    let body = b"The request cannot be admitted at the moment.\n".to_vec();
    let mut response = plain(response(StatusCode::SERVICE_UNAVAILABLE, body));
    set_retry_after(response.headers_mut(), 1, jitter);
    response
}

fn plain(mut response: Response<Bytes>) -> Response<Bytes> {
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

/// The response when the store cannot answer and a rule says to deny then.
pub(super) fn unavailable(jitter: Duration) -> Response<Bytes> {
    let mut body = Vec::with_capacity(320);
    open(&mut body, TYPES, "temporary-reduced-capacity", "Temporarily reduced capacity", 503);
    body.extend_from_slice(b"The request cannot be admitted at the moment.\"}");
    let mut response = response(StatusCode::SERVICE_UNAVAILABLE, body);
    set_retry_after(response.headers_mut(), 1, jitter);
    response
}

/// Sets `Retry-After` to `seconds` and up to `jitter` more, so that not all come back at once.
pub(super) fn set_retry_after(headers: &mut HeaderMap, seconds: u64, jitter: Duration) {
    let spread = match jitter.as_secs() {
        0 => 0,
        most => random::number() % (most + 1),
    };
    headers.insert(RETRY_AFTER, value(seconds.saturating_add(spread)));
}

/// A random time up to `jitter`.
pub(super) fn spread(jitter: Duration) -> Duration {
    match u64::try_from(jitter.as_micros()).unwrap_or(u64::MAX) {
        0 => Duration::ZERO,
        most => Duration::from_micros(random::number() % most.saturating_add(1).max(1)),
    }
}

/// The document up to where the text of `detail` begins.
fn open(body: &mut Vec<u8>, base: &str, kind: &str, title: &str, status: u64) {
    for part in ["{\"type\":\"", base, kind, "\",\"title\":\"", title, "\",\"status\":"] {
        body.extend_from_slice(part.as_bytes());
    }
    push_number(body, status);
    body.extend_from_slice(b",\"detail\":\"");
}

fn response(status: StatusCode, body: Vec<u8>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    // All that a denial carries by default, so that the map does not have to grow.
    *response.headers_mut() = HeaderMap::with_capacity(8);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    // RFC 6585: a 429 must not be stored by a cache; nor should the others outlive their cause.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
