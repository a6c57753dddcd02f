//! The encoding of `google.rpc.Status` with the details `RetryInfo` and `QuotaFailure` in Protocol
//! Buffers.
//!
//! It is written by hand: three messages of two fields each need no code generator.

use std::time::Duration;

use crate::decision::Outcome;

/// The maximum number of policies that a denial names, because gRPC limits metadata to 8 KiB.
const MAX_VIOLATIONS: usize = 8;

/// The field `type_url = 1` of a google.protobuf.Any, and the tag of its field `value = 2`.
const RETRY_INFO: &[u8] = b"\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12";
const QUOTA_FAILURE: &[u8] = b"\x0a\x2btype.googleapis.com/google.rpc.QuotaFailure\x12";

/// Encodes `Status { code = 1, message = 2, details = 3: [Any] }`.
pub(super) fn encode<'a>(
    code: u8,
    message: &[u8],
    wait: Option<Duration>,
    violations: impl Iterator<Item = Outcome<'a>>,
) -> Vec<u8> {
    // This is enough for a denial that names one policy.
    let mut status = Vec::with_capacity(320);
    push_integer(&mut status, 1, u64::from(code));
    push_bytes(&mut status, 2, message);
    if let Some(wait) = wait {
        push_retry_info(&mut status, wait);
    }
    push_quota_failure(&mut status, violations);
    status
}

/// Appends RetryInfo { retry_delay = 1: Duration { seconds = 1, nanos = 2 } } as a detail.
fn push_retry_info(status: &mut Vec<u8>, wait: Duration) {
    let (seconds, nanos) = (wait.as_secs(), u64::from(wait.subsec_nanos()));
    let delay = integer_size(seconds) + integer_size(nanos);
    push_any(status, RETRY_INFO, bytes_size(delay));
    push_header(status, 1, delay);
    push_integer(status, 1, seconds);
    push_integer(status, 2, nanos);
}

/// Appends QuotaFailure { violations = 1: [Violation { subject = 1, description = 2 }] } as a detail,
/// unless there are no violations.
fn push_quota_failure<'a>(status: &mut Vec<u8>, violations: impl Iterator<Item = Outcome<'a>>) {
    let start = status.len();
    push_violations(status, violations);
    let length = status.len() - start;
    if length > 0 {
        // What states the length of the violations comes before them.
        push_any(status, QUOTA_FAILURE, length);
        status[start..].rotate_left(length);
    }
}

fn push_violations<'a>(failure: &mut Vec<u8>, violations: impl Iterator<Item = Outcome<'a>>) {
    let mut digits = [itoa::Buffer::new(); 3];
    for outcome in violations.take(MAX_VIOLATIONS) {
        let standing = outcome.standing();
        let subject = outcome.policy().name().as_bytes();
        let [cost, remaining, limit] = &mut digits;
        let description = [
            "cost ",
            cost.format(outcome.charge().cost()),
            ", remaining ",
            remaining.format(standing.remaining),
            " of ",
            limit.format(standing.limit),
        ];
        let length = description.iter().map(|part| part.len()).sum();
        push_header(failure, 1, bytes_size(subject.len()) + bytes_size(length));
        push_bytes(failure, 1, subject);
        push_header(failure, 2, length);
        description.iter().for_each(|part| failure.extend_from_slice(part.as_bytes()));
    }
}

/// Appends an Any to the details of a status, up to its value of `length` bytes. `prefix` holds its
/// type and the tag of its value.
fn push_any(status: &mut Vec<u8>, prefix: &[u8], length: usize) {
    push_header(status, 3, prefix.len() + bytes_size(length) - 1);
    status.extend_from_slice(prefix);
    push_varint(status, length as u64);
}

/// Appends a length-delimited field.
fn push_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    push_header(message, field, bytes.len());
    message.extend_from_slice(bytes);
}

/// Appends the tag and the length of a length-delimited field.
fn push_header(message: &mut Vec<u8>, field: u8, length: usize) {
    message.push(field << 3 | 2);
    push_varint(message, length as u64);
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

/// Returns the size of a length-delimited field with its tag and its length.
fn bytes_size(length: usize) -> usize {
    1 + varint_size(length as u64) + length
}

/// Returns the size of an integer field.
fn integer_size(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + varint_size(number) }
}

fn varint_size(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}
