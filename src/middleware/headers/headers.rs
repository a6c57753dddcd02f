//! The set of headers that a layer sends, and the headers of one response.

use http::{HeaderMap, HeaderName, header::RETRY_AFTER};

use super::{
    draft11::{self, Draft11, PartitionSecret},
    value,
};
use crate::{
    clock::{Timestamp, micros_up},
    decision::{Decision, Denied, Outcome, Outcomes},
};

/// The set of rate limit headers that responses carry.
///
/// The default is [`draft11`](Self::draft11) and [`x_ratelimit`](Self::x_ratelimit) with
/// [`ResetFormat::Seconds`], which are five headers. Formats are named by their version because the draft
/// may still change. A denial always carries `Retry-After` as well, also with [`none`](Self::none).
/// [`RateLimitLayer::headers`](crate::RateLimitLayer::headers) sets the headers of a layer.
///
/// # Examples
///
/// The default set:
///
/// ```
/// use plimsoll::layer::{Headers, ResetFormat};
///
/// // RateLimit-Policy: "search";q=100;w=60
/// // RateLimit: "search";r=97;t=2
/// // X-RateLimit-Limit: 100, X-RateLimit-Remaining: 97, X-RateLimit-Reset: 2
/// let headers = Headers::default();
/// assert_eq!(headers, Headers::none().draft11().x_ratelimit(ResetFormat::Seconds));
/// ```
///
/// The draft's headers only, with a digest of the key as the partition key:
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by, layer::Headers};
///
/// let rule = Rule::new(Policy::new("search", Quota::per_minute(100))?, by::header("x-api-key"));
/// let headers = Headers::none().draft11().partition_secret(0x2f6d_91c4_55e0_87ab);
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule).headers(headers);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    draft11: bool,
    x_ratelimit: Option<ResetFormat>,
    partition_secret: Option<PartitionSecret>,
}

impl Default for Headers {
    fn default() -> Self {
        Self::none().draft11().x_ratelimit(ResetFormat::Seconds)
    }
}

impl Headers {
    /// Creates an empty set, with which a denial still carries `Retry-After`.
    #[must_use]
    pub const fn none() -> Self {
        Self { draft11: false, x_ratelimit: None, partition_secret: None }
    }

    /// Adds `RateLimit-Policy` and `RateLimit` as in draft-ietf-httpapi-ratelimit-headers-11.
    ///
    /// Each header has a member for each [`Policy`](crate::Policy): a [`Quota`](crate::Quota) of
    /// `q` units in `w` seconds, of which `r` units are left for the next `t` seconds. A window
    /// that is not a whole number of seconds is rounded up. For a
    /// [`TokenBucket`](crate::Algorithm::TokenBucket), `q` is the number of units refilled in a
    /// window, and `r` can be larger, up to the burst.
    ///
    /// If the inner service has sent one of these headers in the form of another draft, such as
    /// `RateLimit: limit=100, remaining=42, reset=3`, both stay as they are. Members of two forms would be a
    /// list that no client can parse.
    #[must_use]
    pub const fn draft11(mut self) -> Self {
        self.draft11 = true;
        self
    }

    /// Adds `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    /// They show one [`Policy`](crate::Policy): the policy that denied the request, or else the policy with the
    /// fewest units left.
    #[must_use]
    pub const fn x_ratelimit(mut self, reset: ResetFormat) -> Self {
        self.x_ratelimit = Some(reset);
        self
    }

    /// Adds a partition key (`pk`) to the members of [`draft11`](Self::draft11), so that a client
    /// can tell its budgets apart.
    ///
    /// The partition key is a digest of the charged [`Key`](crate::Key) under `secret`. The key
    /// cannot be guessed from the digest without the secret. All instances of a service need the
    /// same secret.
    #[must_use]
    pub const fn partition_secret(mut self, secret: u128) -> Self {
        self.partition_secret = Some(PartitionSecret::new(secret));
        self
    }

    /// Returns the names of the headers of the set, and `Retry-After`.
    ///
    /// A script in a browser can read them only if `Access-Control-Expose-Headers` lists them
    /// ([CORS](crate::guide::browsers)).
    #[must_use]
    pub fn names(&self) -> Vec<HeaderName> {
        let draft11: &[_] = if self.draft11 { &draft11::NAMES } else { &[] };
        let x_ratelimit: &[_] = if self.x_ratelimit.is_some() { &X_RATELIMIT_NAMES } else { &[] };
        [&[RETRY_AFTER][..], draft11, x_ratelimit].concat()
    }

    /// Returns the headers of this set for a decision, for a handler that checks a limit itself. They are
    /// those that a [`RateLimitLayer`](crate::RateLimitLayer) adds to the response.
    ///
    /// The response to a denied check also needs a status and `Retry-After`: see
    /// [`Rejection::of`](crate::layer::Rejection::of).
    ///
    /// ```
    /// use plimsoll::{Limiter, Policy, Quota, layer::Headers};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let exports = Policy::new("exports", Quota::per_day(10))?;
    /// let decision = Limiter::in_memory().check(exports.charge("alice", 1)).await?;
    /// let headers = Headers::default().of(&decision);
    /// assert_eq!(headers["ratelimit-policy"], "\"exports\";q=10;w=86400");
    /// assert_eq!(headers["x-ratelimit-remaining"], "9");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn of(&self, decision: &Decision<'_>) -> HeaderMap {
        let headers = match decision {
            Decision::Allowed(_) => self.for_decision(decision),
            Decision::Denied(denied) => self.for_denied(denied),
        };
        let mut map = HeaderMap::new();
        headers.add_to(&mut map);
        map
    }

    /// Returns the headers for a decision that admits the request.
    pub(in crate::middleware) fn for_decision(&self, decision: &Decision<'_>) -> ResponseHeaders {
        self.with(decision.outcomes(), decision.binding(), decision.time(), None)
    }

    /// Returns the headers for a denial.
    pub(in crate::middleware) fn for_denied(&self, denied: &Denied<'_>) -> ResponseHeaders {
        let retry_after = value::retry_after(denied);
        self.with(denied.outcomes(), denied.binding(), denied.time(), retry_after)
    }

    /// Returns the headers for these outcomes. `retry_after` is the wait of a denial, in seconds.
    fn with(
        &self,
        outcomes: Outcomes<'_>,
        binding: Option<Outcome<'_>>,
        time: Timestamp,
        retry_after: Option<u64>,
    ) -> ResponseHeaders {
        // Without a binding outcome only shadow charges were decided, which no header shows.
        let Some(binding) = binding else { return ResponseHeaders::default() };
        ResponseHeaders {
            draft11: self
                .draft11
                .then(|| Draft11::new(outcomes, retry_after, self.partition_secret)),
            x_ratelimit: self.x_ratelimit.map(|reset| XRateLimit::new(binding, time, reset)),
        }
    }
}

/// The number of headers for which a response has room when the rate limit headers are added. Without
/// it, the `Content-Length` that axum adds last would make the map grow once more.
const LATER_HEADERS: usize = 1;

/// The rate limit headers of one response.
#[derive(Debug, Default)]
pub(in crate::middleware) struct ResponseHeaders {
    draft11: Option<Draft11>,
    x_ratelimit: Option<XRateLimit>,
}

impl ResponseHeaders {
    /// Adds the headers to the headers of inner layers: list members are appended, and `X-RateLimit-*` is
    /// replaced if this layer has fewer units left.
    pub(in crate::middleware) fn add_to(self, headers: &mut HeaderMap) {
        let (draft11, x_ratelimit) = (self.draft11.is_some(), self.x_ratelimit.is_some());
        if !draft11 && !x_ratelimit {
            return;
        }
        headers.reserve(2 * usize::from(draft11) + 3 * usize::from(x_ratelimit) + LATER_HEADERS);
        // Both lookups come before the first insertion, because a lookup in an empty map costs
        // nothing and most maps are empty here.
        let retry_after = headers.get(RETRY_AFTER).and_then(value::parse);
        let inner_remaining = headers.get(X_RATELIMIT_REMAINING).and_then(value::parse);
        if let Some(draft11) = self.draft11 {
            draft11.append_to(headers, retry_after);
        }
        if let Some(x_ratelimit) = self.x_ratelimit
            && inner_remaining.is_none_or(|inner| x_ratelimit.remaining < inner)
        {
            x_ratelimit.insert_into(headers);
        }
    }
}

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The names of the three headers.
const X_RATELIMIT_NAMES: [HeaderName; 3] =
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
struct XRateLimit {
    limit: u64,
    remaining: u64,
    /// In seconds.
    reset: u64,
}

impl XRateLimit {
    fn new(outcome: Outcome<'_>, now: Timestamp, reset: ResetFormat) -> Self {
        let standing = outcome.standing();
        // Units in flight come back when work ends, which is not known.
        let is_estimate = outcome.charge().quota().is_concurrent();
        let reset_after =
            micros_up(standing.reset_after).min(if is_estimate { 1_000_000 } else { u64::MAX });
        let reset = match reset {
            ResetFormat::Seconds if reset_after == 0 => 0,
            ResetFormat::Seconds => value::whole_seconds(reset_after),
            ResetFormat::Epoch => value::whole_seconds(now.as_micros() + reset_after),
        };
        Self { limit: standing.limit, remaining: standing.remaining, reset }
    }

    fn insert_into(self, headers: &mut HeaderMap) {
        headers.insert(X_RATELIMIT_LIMIT, value::number(self.limit));
        headers.insert(X_RATELIMIT_REMAINING, value::number(self.remaining));
        headers.insert(X_RATELIMIT_RESET, value::number(self.reset));
    }
}
