//! Denials as problem documents (RFC 9457).

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use smallvec::SmallVec;

use super::response::{response, status, violations};
use crate::decision::Denied;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The documents of denials, up to the end of `detail`.
const QUOTA_EXCEEDED_DOCUMENT: &[u8] = br##"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"The quota allows "##;
const OVER_CAPACITY_DOCUMENT: &[u8] = br##"{"type":"https://docs.rs/tollgate/latest/tollgate/#cost-over-capacity","title":"Cost over capacity","status":403,"detail":"This request costs more than the quota can ever hold: waiting does not help."##;
const UNAVAILABLE_DOCUMENT: &[u8] = br##"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503,"detail":"The request cannot be admitted at the moment."}"##;

/// Returns the response to a denied request: 429 or 403, with the names of the violated policies.
pub(super) fn denied(denied: &Denied<'_>, retry_after: Option<u64>) -> Response<Bytes> {
    let mut seconds = itoa::Buffer::new();
    let mut parts: SmallVec<[&[u8]; 8]> = SmallVec::new();
    match retry_after {
        _ if denied.is_over_capacity() => parts.push(OVER_CAPACITY_DOCUMENT),
        Some(wait) => parts.extend([
            QUOTA_EXCEEDED_DOCUMENT,
            b"this request again in ",
            seconds.format(wait).as_bytes(),
            b" seconds.",
        ]),
        None => parts.extend([QUOTA_EXCEEDED_DOCUMENT, b"no such request at the moment."]),
    }
    parts.push(br#"","violated-policies":[""#);
    for (index, outcome) in violations(denied).enumerate() {
        if index > 0 {
            parts.push(br#"",""#);
        }
        // The names of policies contain no characters that JSON escapes.
        parts.push(outcome.policy().name().as_bytes());
    }
    parts.push(br#""]}"#);
    response(status(denied), PROBLEM_JSON, parts.concat().into())
}

/// Returns the response 503, for a store that cannot answer.
pub(super) fn unavailable() -> Response<Bytes> {
    response(
        StatusCode::SERVICE_UNAVAILABLE,
        PROBLEM_JSON,
        Bytes::from_static(UNAVAILABLE_DOCUMENT),
    )
}
