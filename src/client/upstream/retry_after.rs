//! `Retry-After` (RFC 9110, section 10.2.3).

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, header::RETRY_AFTER};

/// Returns the longest wait in the values of `Retry-After`. A date is converted to the wait from `now`.
pub(super) fn pause(headers: &HeaderMap, now: impl Fn() -> SystemTime) -> Option<Duration> {
    let until = |value: &HeaderValue| parse_date(value)?.duration_since(now()).ok();
    let lines = headers.get_all(RETRY_AFTER).into_iter();
    lines.filter_map(|value| parse_seconds(value).or_else(|| until(value))).max()
}

/// Parses an `HTTP-date` in one of its three forms (RFC 9110, section 5.6.7).
pub(super) fn parse_date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// Parses `delay-seconds`. A number that is too large becomes the maximum.
pub(super) fn parse_seconds(value: &HeaderValue) -> Option<Duration> {
    let digits = value.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = digits.iter().fold(0_u64, |seconds, digit| {
        seconds.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    Some(Duration::from_secs(seconds))
}
