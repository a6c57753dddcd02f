//! The pause that a response of the upstream service asks for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{DATE, RETRY_AFTER},
    response::Parts,
};

use super::structured::{self, Member};
use crate::{clock::wall_time, middleware::Reset};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The choice of the headers of the upstream service that are read.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::client) struct UpstreamHeaders {
    /// The meaning of `X-RateLimit-Reset`, if it is read.
    pub(in crate::client) x_ratelimit: Option<Reset>,
}

impl UpstreamHeaders {
    /// Returns the longest pause that the headers of a response ask for.
    pub(in crate::client) fn pause(self, head: &Parts) -> Option<Duration> {
        let headers = &head.headers;
        let failed = head.status.is_client_error() || head.status.is_server_error();
        let pauses = [
            failed.then(|| retry_after(headers, || now(headers))).flatten(),
            ratelimit(headers),
            self.x_ratelimit.and_then(|reset| x_ratelimit(headers, reset)),
        ];
        pauses.into_iter().flatten().max().filter(|pause| !pause.is_zero())
    }
}

/// Returns the `Date` of the response, or the time of this process if it has none. A date in
/// `Retry-After` is compared with the clock of the same server, because the two clocks can differ.
fn now(headers: &HeaderMap) -> SystemTime {
    headers.get(DATE).and_then(parse_date).unwrap_or_else(wall_time)
}

/// Returns the longest effective window in which no unit is left (draft 11, section 4).
///
/// The window is the `t` of the member, or the `w` of its policy if the member has no `t`.
fn ratelimit(headers: &HeaderMap) -> Option<Duration> {
    let members = structured::list(headers, &RATELIMIT)?;
    let mut spent = members.iter().filter(|member| member.remaining == Some(0)).peekable();
    spent.peek()?;
    let policies = structured::list(headers, &RATELIMIT_POLICY).unwrap_or_default();
    let window = |member: &Member| {
        let policy = || policies.iter().find(|policy| policy.name == member.name);
        member.reset.or_else(|| policy()?.window)
    };
    let seconds = spent.filter_map(window).filter_map(|seconds| u64::try_from(seconds).ok());
    seconds.max().map(Duration::from_secs)
}

fn x_ratelimit(headers: &HeaderMap, reset: Reset) -> Option<Duration> {
    let number = |name| parse_seconds(headers.get(name)?);
    if !number(X_RATELIMIT_REMAINING)?.is_zero() {
        return None;
    }
    let time = number(X_RATELIMIT_RESET)?;
    match reset {
        Reset::Seconds => Some(time),
        Reset::Epoch => {
            let now = now(headers).duration_since(UNIX_EPOCH).unwrap_or_default();
            Some(time.saturating_sub(now))
        }
    }
}

/// Returns the longest wait in the values of `Retry-After` (RFC 9110, section 10.2.3). A date is converted to the wait from `now`.
fn retry_after(headers: &HeaderMap, now: impl Fn() -> SystemTime) -> Option<Duration> {
    let until = |value: &HeaderValue| parse_date(value)?.duration_since(now()).ok();
    let lines = headers.get_all(RETRY_AFTER).into_iter();
    lines.filter_map(|value| parse_seconds(value).or_else(|| until(value))).max()
}

/// Parses an `HTTP-date` in one of its three forms (RFC 9110, section 5.6.7).
fn parse_date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// Parses `delay-seconds`. A number that is too large becomes the maximum.
fn parse_seconds(value: &HeaderValue) -> Option<Duration> {
    let digits = value.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = digits.iter().fold(0_u64, |seconds, digit| {
        seconds.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    Some(Duration::from_secs(seconds))
}
