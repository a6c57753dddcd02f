//! Denials as gRPC clients understand them: Trailers-Only responses with status details.
//!
//! The status is google.rpc.Status with RetryInfo and QuotaFailure, written by hand: three messages
//! of two fields each do not call for a code generator.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response,
    header::{CONTENT_TYPE, HeaderMap},
    request::Parts,
};
use smallvec::{Array, SmallVec};

use super::{
    base64,
    denial::spread,
    text::{Decimal, number},
};
use crate::decision::{Denied, Outcome, Verdict};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const RESOURCE_EXHAUSTED: u8 = 8;
const FAILED_PRECONDITION: u8 = 9;
const UNAVAILABLE: u8 = 14;

/// The most policies that a denial names: metadata is limited to 8 KiB.
const MAX_VIOLATIONS: usize = 8;

/// What to answer in, if the request is one of gRPC or gRPC-Web: its own content type.
pub(super) fn content_type(parts: &Parts) -> Option<&HeaderValue> {
    let value = parts.headers.get(CONTENT_TYPE)?;
    let rest = value.as_bytes().strip_prefix(b"application/grpc")?;
    let rest =
        rest.strip_prefix(b"-web").map_or(rest, |web| web.strip_prefix(b"-text").unwrap_or(web));
    matches!(rest, [] | [b'+' | b';', ..]).then_some(value)
}

/// RESOURCE_EXHAUSTED with the wait; FAILED_PRECONDITION if waiting does not help.
pub(super) fn denial(
    denied: &Denied<'_>,
    content_type: &HeaderValue,
    jitter: Duration,
) -> Response<Bytes> {
    let wait = denied.retry_after();
    let mut message = Text::new();
    match wait {
        Some(wait) => {
            message.extend_from_slice(b"quota exceeded; retry in ");
            push_decimal(&mut message, wait.as_micros().div_ceil(1_000_000).max(1) as u64);
            message.extend_from_slice(b" s");
        }
        None => message.extend_from_slice(b"the cost exceeds what the quota can ever hold"),
    }
    let wait = wait.map(|wait| wait + spread(jitter));
    let code = if wait.is_some() { RESOURCE_EXHAUSTED } else { FAILED_PRECONDITION };
    let violated = denied.outcomes().iter().filter(|outcome| violates(outcome));
    let mut response = trailers_only(code, &message, wait, violated, content_type);
    if let Some(wait) = wait {
        let millis = wait.as_micros().div_ceil(1_000).min(i32::MAX as u128) as u64;
        response.headers_mut().insert(PUSHBACK, number(millis));
    }
    response
}

/// UNAVAILABLE: the store cannot answer, and a rule says to deny then.
pub(super) fn unavailable(content_type: &HeaderValue, jitter: Duration) -> Response<Bytes> {
    let wait = Duration::from_secs(1) + spread(jitter);
    let message = b"the request cannot be admitted at the moment";
    trailers_only(UNAVAILABLE, message, Some(wait), std::iter::empty(), content_type)
}

fn violates(outcome: &Outcome<'_>) -> bool {
    !outcome.charge().is_shadow() && outcome.verdict() != Verdict::Passed
}

fn trailers_only<'a>(
    code: u8,
    message: &[u8],
    wait: Option<Duration>,
    violated: impl Iterator<Item = Outcome<'a>>,
    content_type: &HeaderValue,
) -> Response<Bytes> {
    let status = status(code, message, wait, violated);
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    // Five of ours, five of rate limits.
    headers.reserve(10);
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(STATUS, number(u64::from(code)));
    // These are our own words: they hold nothing that would have to be percent-encoded.
    insert(headers, MESSAGE, message);
    insert(headers, DETAILS, &base64::encode(&status, false));
    response
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &[u8]) {
    if let Ok(text) = HeaderValue::from_bytes(text) {
        headers.insert(name, text);
    }
}

/// google.rpc.Status { code = 1, message = 2, details = 3 }.
fn status<'a>(
    code: u8,
    message: &[u8],
    wait: Option<Duration>,
    violated: impl Iterator<Item = Outcome<'a>>,
) -> Text {
    let mut status = Text::new();
    push_varint(&mut status, 1, u64::from(code));
    push_bytes(&mut status, 2, message);
    if let Some(wait) = wait {
        // RetryInfo { retry_delay = 1: Duration { seconds = 1, nanos = 2 } }
        let (mut delay, mut info) = (Part::new(), Part::new());
        push_varint(&mut delay, 1, wait.as_secs());
        push_varint(&mut delay, 2, u64::from(wait.subsec_nanos()));
        push_bytes(&mut info, 1, &delay);
        push_any(&mut status, b"type.googleapis.com/google.rpc.RetryInfo", &info);
    }
    // QuotaFailure { violations = 1: [Violation { subject = 1, description = 2 }] }
    let mut failure = Text::new();
    for outcome in violated.take(MAX_VIOLATIONS) {
        let (mut description, mut violation) = (Part::new(), Part::new());
        description.extend_from_slice(b"cost ");
        push_decimal(&mut description, outcome.charge().cost());
        description.extend_from_slice(b", remaining ");
        push_decimal(&mut description, outcome.standing().remaining());
        description.extend_from_slice(b" of ");
        push_decimal(&mut description, outcome.standing().limit());
        push_bytes(&mut violation, 1, outcome.policy().name().as_bytes());
        push_bytes(&mut violation, 2, &description);
        push_bytes(&mut failure, 1, &violation);
    }
    if !failure.is_empty() {
        push_any(&mut status, b"type.googleapis.com/google.rpc.QuotaFailure", &failure);
    }
    status
}

/// Built on the stack: most denials name one policy.
type Text = SmallVec<[u8; 384]>;
type Part = SmallVec<[u8; 128]>;

/// google.protobuf.Any { type_url = 1, value = 2 }, as one of a status's details.
fn push_any(status: &mut Text, type_url: &[u8], value: &[u8]) {
    // Field 3 of the status: two fields with their tags and lengths.
    let size = field_size(type_url.len()) + field_size(value.len());
    status.push(3 << 3 | 2);
    varint(status, size as u64);
    push_bytes(status, 1, type_url);
    push_bytes(status, 2, value);
}

fn field_size(length: usize) -> usize {
    let bits = usize::BITS - (length | 1).leading_zeros();
    1 + bits.div_ceil(7) as usize + length
}

/// A length-delimited field.
fn push_bytes<A: Array<Item = u8>>(text: &mut SmallVec<A>, field: u8, bytes: &[u8]) {
    text.push(field << 3 | 2);
    varint(text, bytes.len() as u64);
    text.extend_from_slice(bytes);
}

/// A varint field; 0 is the default and is left out.
fn push_varint<A: Array<Item = u8>>(text: &mut SmallVec<A>, field: u8, number: u64) {
    if number != 0 {
        text.push(field << 3);
        varint(text, number);
    }
}

fn varint<A: Array<Item = u8>>(text: &mut SmallVec<A>, mut number: u64) {
    while number > 0x7f {
        text.push(number as u8 | 0x80);
        number >>= 7;
    }
    text.push(number as u8);
}

fn push_decimal<A: Array<Item = u8>>(text: &mut SmallVec<A>, number: u64) {
    text.extend_from_slice(Decimal::of(number).as_bytes());
}
