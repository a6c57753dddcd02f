//! `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.

use http::{HeaderMap, HeaderName};

use super::value::{self, whole_seconds};
use crate::{clock::Timestamp, decision::Outcome};

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const X_RATELIMIT_REMAINING: HeaderName =
    HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The names of the three headers.
pub(super) const NAMES: [HeaderName; 3] =
    [X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET];

/// The meaning of `X-RateLimit-Reset` in [`Headers::x_ratelimit`](crate::layer::Headers::x_ratelimit). No
/// standard defines it.
///
/// ```
/// use plimsoll::{Limiter, Quota, RateLimitLayer, layer::{Headers, ResetFormat}};
///
/// // As GitHub's: no draft headers, and the time of the reset as an epoch.
/// let layer = RateLimitLayer::per_ip(Limiter::in_memory(), Quota::per_hour(60))?
///     .headers(Headers::none().x_ratelimit(ResetFormat::Epoch));
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetFormat {
    /// The number of seconds until all units are free again, as Envoy and Kong send it. It does not
    /// depend on the clock of the client. [`Headers::default`](crate::layer::Headers::default) uses it.
    Seconds,
    /// The time at which all units are free again, in seconds since the Unix epoch, as GitHub sends
    /// it.
    Epoch,
}

/// The values of the three headers.
#[derive(Debug)]
pub(super) struct XRateLimit {
    limit: u64,
    pub(super) remaining: u64,
    /// In seconds.
    reset: u64,
}

impl XRateLimit {
    pub(super) fn new(outcome: Outcome<'_>, now: Timestamp, reset: ResetFormat) -> Self {
        let standing = outcome.standing();
        // Units in flight come back when work ends, which is not known.
        let is_estimate = outcome.charge().quota().is_concurrent();
        let reset_after = standing.reset_after.min(if is_estimate { 1_000_000 } else { u64::MAX });
        let reset = match reset {
            ResetFormat::Seconds if reset_after == 0 => 0,
            ResetFormat::Seconds => whole_seconds(reset_after),
            ResetFormat::Epoch => whole_seconds(now.as_micros() + reset_after),
        };
        Self { limit: standing.limit, remaining: standing.remaining, reset }
    }

    pub(super) fn insert_into(self, headers: &mut HeaderMap) {
        headers.insert(X_RATELIMIT_LIMIT, value::number(self.limit));
        headers.insert(X_RATELIMIT_REMAINING, value::number(self.remaining));
        headers.insert(X_RATELIMIT_RESET, value::number(self.reset));
    }
}
