//! Denials for gRPC and gRPC-Web clients, which are Trailers-Only responses with status details.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};

use super::{grpc_status, response::violations};
use crate::{
    decision::Denied,
    middleware::headers::{
        number,
        retry_after::{random_part, whole_seconds},
    },
};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const RESOURCE_EXHAUSTED: u8 = 8;
const FAILED_PRECONDITION: u8 = 9;
const UNAVAILABLE: u8 = 14;

/// Returns the response to a denied request: `FAILED_PRECONDITION` if a cost is over capacity, and
/// `RESOURCE_EXHAUSTED` otherwise.
pub(super) fn denied(
    denied: &Denied<'_>,
    content_type: HeaderValue,
    jitter: Duration,
) -> Response<Bytes> {
    let wait = denied.retry_after().filter(|_| !denied.is_over_capacity());
    let mut digits = itoa::Buffer::new();
    let message: [&str; 3] = match wait {
        _ if denied.is_over_capacity() => ["the cost exceeds what the quota can ever hold", "", ""],
        Some(wait) => {
            let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
            ["quota exceeded; retry in ", digits.format(whole_seconds(micros)), " s"]
        }
        None => ["quota exceeded", "", ""],
    };
    let code = if denied.is_over_capacity() { FAILED_PRECONDITION } else { RESOURCE_EXHAUSTED };
    let wait = wait.map(|wait| wait.saturating_add(random_part(jitter)));
    let message = message.concat();
    let status = grpc_status::encode(code, message.as_bytes(), wait, violations(denied));
    let mut response = trailers_only(code, message, &status, content_type);
    if let Some(wait) = wait {
        // Clients parse this number as a 32-bit integer.
        let millis = wait.as_micros().div_ceil(1_000).min(i32::MAX as u128) as u64;
        response.headers_mut().insert(GRPC_RETRY_PUSHBACK, number(millis));
    }
    response
}

/// Returns the response `UNAVAILABLE`, for a store that cannot answer and a rule that denies
/// requests then.
pub(super) fn unavailable(content_type: HeaderValue, jitter: Duration) -> Response<Bytes> {
    let wait = Duration::from_secs(1).saturating_add(random_part(jitter));
    let message = "the request cannot be admitted at the moment".to_owned();
    let violations = std::iter::empty();
    let status = grpc_status::encode(UNAVAILABLE, message.as_bytes(), Some(wait), violations);
    trailers_only(UNAVAILABLE, message, &status, content_type)
}

/// Creates a response without a body, which both protocols allow (PROTOCOL-WEB.md, "Trailers-only
/// responses"). `message` must need no percent-encoding.
fn trailers_only(
    code: u8,
    message: String,
    status: &[u8],
    content_type: HeaderValue,
) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    // The response gets five headers of gRPC, five of rate limits, and `Cache-Control`.
    *response.headers_mut() = HeaderMap::with_capacity(11);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_STATUS, number(u64::from(code)));
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert(GRPC_MESSAGE, message);
    }
    // gRPC encodes binary metadata without padding.
    if let Ok(details) = HeaderValue::try_from(STANDARD_NO_PAD.encode(status)) {
        headers.insert(GRPC_STATUS_DETAILS, details);
    }
    response
}
