//! The pause that a response of the upstream service asks for.

use std::{
    convert,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{
    HeaderMap, HeaderName, StatusCode,
    header::{DATE, RETRY_AFTER},
};

use crate::structured;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Converts the number of a header to seconds.
type ToSeconds = fn(f64) -> f64;

/// The headers with the time after which a failed call may be repeated. A decimal in `Retry-After`, which
/// counts whole seconds, is rounded up.
const RETRIES: [(&str, ToSeconds); 3] = [
    ("retry-after", f64::ceil),
    ("retry-after-ms", |milliseconds| milliseconds / 1e3),
    ("x-ms-retry-after-ms", |milliseconds| milliseconds / 1e3),
];

/// A header, and the text before each value in it.
type Field = (&'static str, &'static str);

/// The headers with the units that are left, and the headers with the time until there are more. Two lists are
/// paired by position.
const RESETS: [(Field, Field); 7] = [
    // Drafts 0 to 6, and draft 7.
    (("ratelimit-remaining", ""), ("ratelimit-reset", "")),
    (("ratelimit", "remaining="), ("ratelimit", "reset=")),
    // No standard.
    (("x-ratelimit-remaining", ""), ("x-ratelimit-reset", "")),
    (("x-ratelimit-remaining", ""), ("x-ratelimit-reset-after", "")),
    (("x-rate-limit-remaining", ""), ("x-rate-limit-reset", "")),
    (("x-ratelimit-remaining-requests", ""), ("x-ratelimit-reset-requests", "")),
    (("x-ratelimit-remaining-tokens", ""), ("x-ratelimit-reset-tokens", "")),
];

/// The number of seconds from which a value is a time since 1970, and no longer a wait: 2001, or 31 years.
const FIRST_EPOCH_SECONDS: f64 = 1e9;
/// The number from which a time since 1970 is in milliseconds.
const FIRST_EPOCH_MILLISECONDS: f64 = 1e12;

/// The units of a time such as `6m0s` or `20ms`, in seconds. Seconds need no unit.
const UNITS: [(&str, f64); 6] =
    [("", 1.0), ("s", 1.0), ("ms", 1e-3), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];

/// A pause that a response asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Calls are allowed again after this time.
    For(Duration),
    /// The service denied the call, and no header says when calls are allowed again.
    Unstated,
}

impl Pause {
    /// Returns the pause that a response asks for, if it asks for one.
    ///
    /// `Retry-After` and draft 11 have precedence over the older headers, whose time can be the time until
    /// all units are free (draft 7, section 3).
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let failed = status.is_client_error() || status.is_server_error();
        let denied = status == StatusCode::TOO_MANY_REQUESTS;
        let unavailable = status == StatusCode::SERVICE_UNAVAILABLE;
        let retry_after = failed.then(|| retry_after(headers)).flatten();
        let stated = retry_after
            .max(ratelimit(headers))
            .filter(|pause| !pause.is_zero())
            .or_else(|| reset(headers, denied))
            .filter(|pause| !pause.is_zero());
        let is_unstated = denied || unavailable && headers.contains_key(RETRY_AFTER);
        stated.map(Self::For).or(is_unstated.then_some(Self::Unstated))
    }
}

/// Returns the longest time in the headers of [`RETRIES`].
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let waits = RETRIES.into_iter().flat_map(|(name, to_seconds)| {
        values(headers, (name, "")).filter_map(move |value| wait(headers, value, to_seconds))
    });
    waits.max()
}

/// Returns the longest effective window in which no unit is left (draft 11, section 4).
///
/// The window is the `t` of the member, its `w` (draft 12), or the `w` of its policy.
fn ratelimit(headers: &HeaderMap) -> Option<Duration> {
    let members = structured::list(headers, &RATELIMIT)?;
    let mut spent =
        members.iter().filter(|member| member.remaining.or(member.available) == Some(0)).peekable();
    spent.peek()?;
    let policies = structured::list(headers, &RATELIMIT_POLICY).unwrap_or_default();
    let windows = spent.filter_map(|member| {
        let mut of_policy = policies.iter().filter(|policy| policy.name == member.name);
        member.reset.or(member.window).or_else(|| of_policy.next()?.window)
    });
    let seconds = windows.filter_map(|seconds| u64::try_from(seconds).ok());
    seconds.max().map(Duration::from_secs)
}

/// Returns the longest time in the headers of [`RESETS`] until which less than one unit is left. After a
/// denial, no unit is left where no number says otherwise.
fn reset(headers: &HeaderMap, denied: bool) -> Option<Duration> {
    let waits = RESETS.into_iter().flat_map(|(remaining, reset)| {
        let mut remaining = values(headers, remaining).map(number);
        let spent = values(headers, reset).filter(move |_| {
            remaining.next().flatten().map_or(denied, |remaining| remaining < 1.0)
        });
        spent.filter_map(|value| wait(headers, value, convert::identity))
    });
    waits.max()
}

/// Returns the values in all lines of a header: the items of its lists, or a date.
fn values(headers: &HeaderMap, (name, prefix): Field) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    let values = lines.flat_map(|line| {
        let is_date = httpdate::parse_http_date(line).is_ok();
        line.split(move |character| character == ',' && !is_date)
    });
    values.filter_map(move |value| value.trim().strip_prefix(prefix))
}

/// Returns the wait that a value states: an `HTTP-date` (RFC 9110, section 5.6.7), or a number, which is a wait or a
/// time since 1970.
fn wait(headers: &HeaderMap, value: &str, to_seconds: ToSeconds) -> Option<Duration> {
    let Some(number) = number(value) else {
        return httpdate::parse_http_date(value).ok()?.duration_since(now(headers)).ok();
    };
    let seconds = to_seconds(number);
    let wait = if seconds >= FIRST_EPOCH_SECONDS {
        let is_in_milliseconds = seconds >= FIRST_EPOCH_MILLISECONDS;
        let end = if is_in_milliseconds { seconds / 1e3 } else { seconds };
        end - now(headers).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    } else {
        seconds
    };
    Some(Duration::try_from_secs_f64(wait.max(0.0)).unwrap_or(Duration::MAX))
}

/// Returns the `Date` of the response, or the time of this process if it has none. A time is compared with the
/// clock of the server that sent it, because the two clocks can differ.
fn now(headers: &HeaderMap) -> SystemTime {
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    date.and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or_else(wall_time)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a date of the server is compared with the wall clock"
)]
fn wall_time() -> SystemTime {
    SystemTime::now()
}

fn is_number(character: char) -> bool {
    character.is_ascii_digit() || character == '.'
}

/// Parses a number such as `9` and `2.0`, or a time such as `6m0s`, in seconds. It is not negative, but can be
/// infinite.
fn number(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut sum = 0.0;
    loop {
        let after_digits = rest.trim_start_matches(is_number);
        let (digits, _) = rest.split_at(rest.len() - after_digits.len());
        rest = after_digits.trim_start_matches(|character| !is_number(character));
        let (unit, _) = after_digits.split_at(after_digits.len() - rest.len());
        let (_, seconds) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        sum += digits.parse::<f64>().ok()? * seconds;
        if rest.is_empty() {
            return Some(sum);
        }
    }
}
