//! The responses that refuse: 429, 403 and 503, as problem documents (RFC 9457).

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
};
use smallvec::SmallVec;

use super::{
    headers::{seconds_up, window_seconds},
    text::{self, Decimal},
};
use crate::{
    decision::{Denied, Verdict},
    random,
};

const QUOTA_EXCEEDED: &[u8] = br##"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"The quota allows this request again in "##;
const OVER_CAPACITY: &[u8] = br##"{"type":"https://docs.rs/tollgate/latest/tollgate/#cost-over-capacity","title":"Cost over capacity","status":403,"detail":"This request costs more than the quota can ever hold: waiting does not help."##;
const UNAVAILABLE: &[u8] = br##"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503,"detail":"The request cannot be admitted at the moment."}"##;

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
    let seconds = Decimal::of(retry_after.unwrap_or(0));
    let mut parts: SmallVec<[&[u8]; 8]> = SmallVec::new();
    let status = match retry_after {
        Some(_) => {
            parts.extend([QUOTA_EXCEEDED, seconds.as_bytes(), b" seconds."]);
            StatusCode::TOO_MANY_REQUESTS
        }
        None => {
            parts.push(OVER_CAPACITY);
            StatusCode::FORBIDDEN
        }
    };
    parts.push(br#"","violated-policies":[""#);
    for (index, outcome) in violated.enumerate() {
        if index > 0 {
            parts.push(br#"",""#);
        }
        // Names are made of characters that need no escape.
        parts.push(outcome.policy().name().as_bytes());
    }
    parts.push(br#""]}"#);
    response(status, parts.concat().into())
}

/// A denial in plain text.
pub(super) fn text(retry_after: Option<u64>) -> Response<Bytes> {
    match retry_after {
        Some(seconds) => {
            let seconds = Decimal::of(seconds);
            let body = [b"Too many requests. Retry in ", seconds.as_bytes(), b" s.\n"].concat();
            plain(response(StatusCode::TOO_MANY_REQUESTS, body.into()))
        }
        None => {
            let body = b"This request costs more than the quota can ever hold.\n";
            plain(response(StatusCode::FORBIDDEN, Bytes::from_static(body)))
        }
    }
}

/// As [`unavailable`], in plain text.
pub(super) fn unavailable_text(jitter: Duration) -> Response<Bytes> {
    let body = Bytes::from_static(b"The request cannot be admitted at the moment.\n");
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
    let body = Bytes::from_static(UNAVAILABLE);
    let mut response = response(StatusCode::SERVICE_UNAVAILABLE, body);
    set_retry_after(response.headers_mut(), 1, jitter);
    response
}

/// Sets `Retry-After` to `seconds` and up to `jitter`, rounded up, more, so that not all come back
/// at once.
pub(super) fn set_retry_after(headers: &mut HeaderMap, seconds: u64, jitter: Duration) {
    let spread = match jitter.as_secs().saturating_add(u64::from(jitter.subsec_nanos() > 0)) {
        0 => 0,
        most => random::number() % most.saturating_add(1),
    };
    headers.insert(RETRY_AFTER, text::number(seconds.saturating_add(spread)));
}

/// A random time up to `jitter`.
pub(super) fn spread(jitter: Duration) -> Duration {
    match u64::try_from(jitter.as_micros()).unwrap_or(u64::MAX) {
        0 => Duration::ZERO,
        most => Duration::from_micros(random::number() % most.saturating_add(1).max(1)),
    }
}

fn response(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    // All that a denial carries by default, so that the map does not have to grow.
    *response.headers_mut() = HeaderMap::with_capacity(8);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    // RFC 6585: a 429 must not be stored by a cache; nor should the others outlive their cause.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
