//! Rejections of gRPC and gRPC-Web requests: Trailers-Only responses with a gRPC status.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, Version,
    header::{CONTENT_TYPE, RETRY_AFTER},
    request::Parts,
};

use super::{Rejection, RejectionKind, rejection::violations};
use crate::{
    base64,
    decision::{Denied, Standing},
    middleware::headers::number,
    outcome::DenialBody,
    random,
};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const RESOURCE_EXHAUSTED: u8 = 8;
const FAILED_PRECONDITION: u8 = 9;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;

/// Returns the response to a gRPC or gRPC-Web request. It has no body, which both protocols allow (PROTOCOL-WEB.md,
/// "Trailers-only responses").
pub(in crate::middleware) fn respond(
    rejection: Rejection<'_>,
    content_type: HeaderValue,
) -> Response<DenialBody> {
    let status = GrpcStatus::of(&rejection);
    let mut response = Response::new(DenialBody::Document(Bytes::new()));
    *response.headers_mut() = rejection.into_headers();
    let headers = response.headers_mut();
    headers.remove(RETRY_AFTER);
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_STATUS, number(u64::from(status.code)));
    status.add_pushback(headers);
    if let Ok(message) = HeaderValue::try_from(status.message) {
        headers.insert(GRPC_MESSAGE, message);
    }
    // gRPC sends binary metadata without padding.
    if let Ok(details) = HeaderValue::try_from(base64::unpadded(&status.details)) {
        headers.insert(GRPC_STATUS_DETAILS, details);
    }
    response
}

/// The status of a rejected call.
struct GrpcStatus {
    code: u8,
    /// The message, which needs no percent-encoding.
    message: String,
    /// `google.rpc.Status` in Protocol Buffers.
    details: Vec<u8>,
    /// The wait for clients that follow `grpc-retry-pushback-ms`.
    pushback: Option<Duration>,
}

impl GrpcStatus {
    fn of(rejection: &Rejection<'_>) -> Self {
        let denied = rejection.denied();
        let (code, wait) = match rejection.kind() {
            RejectionKind::OverQuota => (RESOURCE_EXHAUSTED, denied.and_then(Denied::retry_after)),
            RejectionKind::OverCapacity => (FAILED_PRECONDITION, None),
            RejectionKind::Unavailable => (UNAVAILABLE, Some(Duration::from_secs(1))),
            RejectionKind::NoPeer => (INTERNAL, None),
        };
        let message = rejection.detail(&mut itoa::Buffer::new()).concat();
        let wait = wait.map(|wait| wait.saturating_add(random::part_of(rejection.jitter())));
        let details = details(code, &message, wait, denied);
        Self { code, message, details, pushback: wait.filter(|_| denied.is_some()) }
    }

    fn add_pushback(&self, headers: &mut HeaderMap) {
        if let Some(wait) = self.pushback {
            // Clients parse this number as a 32-bit integer.
            let millis = wait.as_micros().div_ceil(1_000).min(i32::MAX as u128) as u64;
            headers.insert(GRPC_RETRY_PUSHBACK, number(millis));
        }
    }
}

const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
const QUOTA_FAILURE: &[u8] = b"type.googleapis.com/google.rpc.QuotaFailure";

/// The maximum number of policies that a denial names, because gRPC limits metadata to 8 KiB.
const MAX_VIOLATIONS: usize = 8;

/// Encodes `Status { code = 1, message = 2, details = 3: [Any] }` with the details `RetryInfo` and `QuotaFailure`.
///
/// It is written by hand: three messages of two fields each need no code generator.
fn details(
    code: u8,
    message: &str,
    wait: Option<Duration>,
    denied: Option<&Denied<'_>>,
) -> Vec<u8> {
    // This is enough for a denial that names one policy.
    let mut status = Vec::with_capacity(320);
    push_integer(&mut status, 1, u64::from(code));
    push_message(&mut status, 2, |text| text.extend_from_slice(message.as_bytes()));
    if let Some(wait) = wait {
        // RetryInfo { retry_delay = 1: Duration { seconds = 1, nanos = 2 } }
        push_detail(&mut status, RETRY_INFO, |info| {
            push_message(info, 1, |delay| {
                push_integer(delay, 1, wait.as_secs());
                push_integer(delay, 2, u64::from(wait.subsec_nanos()));
            });
        });
    }
    if let Some(denied) = denied {
        // QuotaFailure { violations = 1: [Violation { subject = 1, description = 2 }] }
        push_detail(&mut status, QUOTA_FAILURE, |failure| {
            for outcome in violations(denied).take(MAX_VIOLATIONS) {
                let policy = outcome.charge().policy().name();
                let cost = outcome.charge().cost();
                let Standing { remaining, limit, .. } = outcome.standing();
                push_message(failure, 1, |violation| {
                    push_message(violation, 1, |text| text.extend_from_slice(policy.as_bytes()));
                    push_message(violation, 2, |text| {
                        let mut digits = [itoa::Buffer::new(); 3];
                        let [cost_digits, remaining_digits, limit_digits] = &mut digits;
                        let parts = [
                            "cost ",
                            cost_digits.format(cost),
                            ", remaining ",
                            remaining_digits.format(*remaining),
                            " of ",
                            limit_digits.format(*limit),
                        ];
                        parts.iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
                    });
                });
            }
        });
    }
    status
}

/// Appends a google.protobuf.Any to the details of a status: `Any { type_url = 1, value = 2 }`.
fn push_detail(status: &mut Vec<u8>, url: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
    push_message(status, 3, |any| {
        push_message(any, 1, |text| text.extend_from_slice(url));
        push_message(any, 2, write);
    });
}

/// Appends a field whose length is in front of what `write` appends.
fn push_message(message: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    // Most lengths have one byte.
    message.extend_from_slice(&[field << 3 | 2, 0]);
    let start = message.len();
    write(message);
    let length = message.len() - start;
    if length <= 0x7f {
        message[start - 1] = length as u8;
        return;
    }
    let mut varint = Vec::new();
    push_varint(&mut varint, length as u64);
    message.splice(start - 1..start, varint);
}

/// Appends an integer field, unless it is 0, which is the default.
fn push_integer(message: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        message.push(field << 3);
        push_varint(message, number);
    }
}

fn push_varint(message: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

/// The content types of responses, in lower case. A response never repeats the text of the client.
static BASES: [HeaderValue; 3] = [
    HeaderValue::from_static("application/grpc"),
    HeaderValue::from_static("application/grpc-web"),
    HeaderValue::from_static("application/grpc-web-text"),
];
static GRPC_FORMATS: [HeaderValue; 2] = [
    HeaderValue::from_static("application/grpc+proto"),
    HeaderValue::from_static("application/grpc+json"),
];
static GRPC_WEB_FORMATS: [HeaderValue; 3] = [
    HeaderValue::from_static("application/grpc-web+proto"),
    HeaderValue::from_static("application/grpc-web+json"),
    HeaderValue::from_static("application/grpc-web-text+proto"),
];

/// Returns the content type of the response to a gRPC or gRPC-Web request, and `None` for any other
/// request.
///
/// - The method is POST, so that a denial with status 200 is never cached as the response to a GET request.
/// - gRPC uses HTTP/2 (gRPC over HTTP2, "Requests"). gRPC-Web uses any version of HTTP
///   (PROTOCOL-WEB.md, "HTTP wire protocols").
/// - There is one content type. Its case and its parameters have no effect (RFC 9110, section
///   8.3.1).
pub(in crate::middleware) fn content_type(parts: &Parts) -> Option<HeaderValue> {
    if parts.method != Method::POST {
        return None;
    }
    let mut values = parts.headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let media_type = value.as_bytes().split(|byte| *byte == b';').next()?.trim_ascii();
    let base = base(media_type)?;
    let is_web = base != "application/grpc";
    if !is_web && parts.version < Version::HTTP_2 {
        return None;
    }
    let with_format: &[HeaderValue] = if is_web { &GRPC_WEB_FORMATS } else { &GRPC_FORMATS };
    let has_format = media_type.len() > base.len();
    let same =
        |known: &&HeaderValue| has_format && media_type.eq_ignore_ascii_case(known.as_bytes());
    // The response has no messages, so their format has no effect. A client with an unknown format gets
    // the content type without a format.
    Some(with_format.iter().find(same).unwrap_or(base).clone())
}

/// Returns the media type without its message format (`+proto`), if it is one of gRPC.
fn base(media_type: &[u8]) -> Option<&'static HeaderValue> {
    let plus = media_type.iter().position(|byte| *byte == b'+');
    let (base, format) = media_type.split_at(plus.unwrap_or(media_type.len()));
    let found = BASES.iter().find(|known| base.eq_ignore_ascii_case(known.as_bytes()))?;
    let mut name = format.iter().skip(1);
    let is_format = name.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte));
    (is_format && format != b"+").then_some(found)
}

#[cfg(feature = "tonic")]
mod tonic {
    use http::HeaderMap;
    use tonic::{Code, Status, metadata::MetadataMap};

    use super::{GrpcStatus, Rejection};
    use crate::{
        decision::Denied,
        middleware::{headers::Headers, respond::rejection::forbid_caching},
    };

    /// The status has the code, the message and the details that a
    /// [`RateLimitLayer`](crate::RateLimitLayer) sends, and its metadata `grpc-retry-pushback-ms`
    /// and `cache-control`. It has no rate limit headers, because a status may be sent in trailers,
    /// where these headers are not allowed.
    impl From<Denied<'_>> for Status {
        fn from(denied: Denied<'_>) -> Self {
            let status = GrpcStatus::of(&Rejection::of(&denied, &Headers::none()));
            let mut metadata = HeaderMap::new();
            forbid_caching(&mut metadata);
            status.add_pushback(&mut metadata);
            let (code, metadata) =
                (Code::from_i32(status.code.into()), MetadataMap::from_headers(metadata));
            Self::with_details_and_metadata(code, status.message, status.details.into(), metadata)
        }
    }
}
