//! Rate limit headers: `RateLimit-Policy` and `RateLimit` as in the IETF draft, version 11, and the
//! `X-RateLimit-*` of custom.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};

use super::{
    base64,
    text::{self, Text},
};
use crate::{
    decision::{Decision, Outcome, Outcomes, Standing},
    policy::Policy,
};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STANDING: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Which headers responses carry.
///
/// The default is [`draft11`](Self::draft11) and [`x_ratelimit`](Self::x_ratelimit) with
/// [`Reset::Seconds`]. Formats are named by their version, because the draft still changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    draft11: bool,
    x_ratelimit: Option<Reset>,
    partition: Option<Secret>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Secret([u64; 2]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What `X-RateLimit-Reset` means: there is no standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reset {
    /// Seconds from now until everything has come back, as Envoy and Kong send it. Client and
    /// server need not agree on the time.
    Seconds,
    /// Seconds since the Unix epoch at which everything has come back, as GitHub sends it.
    Epoch,
}

impl Default for Headers {
    fn default() -> Self {
        Self::none().draft11().x_ratelimit(Reset::Seconds)
    }
}

impl Headers {
    /// No headers. A denial still has its `Retry-After`.
    #[must_use]
    pub const fn none() -> Self {
        Self { draft11: false, x_ratelimit: None, partition: None }
    }

    /// `RateLimit-Policy` and `RateLimit` as in draft-ietf-httpapi-ratelimit-headers-11: a member
    /// for each policy, `q` units per `w` seconds, `r` units left for the next `t` seconds.
    ///
    /// A window that is not a whole number of seconds is rounded up. For a token bucket `q` is what
    /// comes back in a window, so `r` can exceed it: up to the burst.
    #[must_use]
    pub const fn draft11(mut self) -> Self {
        self.draft11 = true;
        self
    }

    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, of the policy that
    /// denied or else of the one with the fewest units left.
    #[must_use]
    pub const fn x_ratelimit(mut self, reset: Reset) -> Self {
        self.x_ratelimit = Some(reset);
        self
    }

    /// Adds a partition key, `pk`, to the members of [`draft11`](Self::draft11): a digest of who is
    /// charged, so that a client can tell its budgets apart. Instances of a service share the
    /// secret; without it nobody can guess the key from the digest.
    #[must_use]
    pub const fn partition_key(mut self, secret: u128) -> Self {
        self.partition = Some(Secret([secret as u64, (secret >> 64) as u64]));
        self
    }

    /// What a response to this decision carries.
    pub(super) fn stamp(&self, decision: &Decision<'_>, retry_after: Option<u64>) -> Stamp {
        let mut stamp = Stamp { draft11: None, x_ratelimit: None };
        let Some(binding) = decision.binding() else { return stamp };
        if self.draft11 {
            // Retry-After must not point before the end of any window shown; a shorter window stays
            // true.
            let window = |outcome: &Outcome<'_>| {
                window_seconds(outcome.standing()).min(retry_after.unwrap_or(u64::MAX))
            };
            stamp.draft11 = Some(Draft11 {
                policy: list(decision.outcomes(), |text, outcome| {
                    push_partition(text, outcome, self.partition);
                    push_policy(text, outcome);
                }),
                standing: list(decision.outcomes(), |text, outcome| {
                    push_partition(text, outcome, self.partition);
                    text.number(window(&outcome));
                    text.part(b";t=");
                    text.number(outcome.standing().remaining);
                    text.part(b";r=");
                }),
                longest: decision.outcomes().iter().map(|it| window(&it)).max().unwrap_or(0),
            });
        }
        if let Some(reset) = self.x_ratelimit {
            let standing = binding.standing();
            let from = match reset {
                Reset::Seconds => 0,
                Reset::Epoch => decision.time().as_micros(),
            };
            let at = if standing.reset_after == 0 && reset == Reset::Seconds {
                0
            } else {
                seconds_up(from + standing.reset_after)
            };
            stamp.x_ratelimit =
                Some(Tightest { remaining: standing.remaining, limit: standing.limit, reset: at });
        }
        stamp
    }
}

/// The headers of one decision.
#[derive(Debug)]
pub(super) struct Stamp {
    draft11: Option<Draft11>,
    x_ratelimit: Option<Tightest>,
}

#[derive(Debug)]
struct Draft11 {
    policy: HeaderValue,
    standing: HeaderValue,
    /// The longest window shown, in seconds.
    longest: u64,
}

#[derive(Debug)]
struct Tightest {
    limit: u64,
    remaining: u64,
    reset: u64,
}

impl Stamp {
    /// Adds the headers to those that inner layers have left: list members beside theirs, and
    /// `X-RateLimit-*` if this layer's limit is the tighter one.
    pub(super) fn apply(self, headers: &mut HeaderMap) {
        let (draft11, x_ratelimit) = (self.draft11.is_some(), self.x_ratelimit.is_some());
        headers.reserve(2 * usize::from(draft11) + 3 * usize::from(x_ratelimit));
        // Before anything is added: nothing is looked up in the map of most responses, which is empty.
        let retry_after = headers.get(RETRY_AFTER).and_then(number);
        let inner = headers.get(X_REMAINING).and_then(number);
        if let Some(Draft11 { policy, standing, longest }) = self.draft11 {
            headers.append(POLICY, policy);
            headers.append(
                STANDING,
                match retry_after {
                    Some(seconds) if seconds < longest => cap_windows(&standing, seconds),
                    _ => standing,
                },
            );
        }
        if let Some(Tightest { limit, remaining, reset }) = self.x_ratelimit
            && inner.is_none_or(|inner| remaining < inner)
        {
            headers.insert(X_LIMIT, text::number(limit));
            headers.insert(X_REMAINING, text::number(remaining));
            headers.insert(X_RESET, text::number(reset));
        }
    }
}

fn number(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

/// The same members, with no window that lasts longer than the `Retry-After` of an inner layer.
fn cap_windows(members: &HeaderValue, most: u64) -> HeaderValue {
    let text = members.to_str().unwrap_or_default();
    let capped = text.split(", ").map(|member| {
        let Some((rest, tail)) = member.split_once(";t=") else { return member.to_owned() };
        let (window, tail) = tail.split_at(tail.find(';').unwrap_or(tail.len()));
        let longer = window.parse().is_ok_and(|window: u64| window > most);
        if longer { format!("{rest};t={}{tail}", most.max(1)) } else { member.to_owned() }
    });
    let capped = capped.collect::<Vec<_>>().join(", ");
    HeaderValue::from_str(&capped).unwrap_or_else(|_| members.clone())
}

/// The most bytes of a member: a name, a unit, a partition key, two numbers and what joins them.
const MEMBER: usize = 2 * Policy::MAX_NAME + 112;

/// A structured field: a List with a member for each outcome, whose parameters `push` writes.
#[inline]
fn list<'a>(outcomes: Outcomes<'a>, push: impl Fn(&mut Text<'_>, Outcome<'a>)) -> HeaderValue {
    match outcomes.len() {
        0 | 1 => list_in(&mut [0; MEMBER], outcomes, push),
        many => list_in(&mut vec![0; many * MEMBER], outcomes, push),
    }
}

#[inline]
fn list_in<'a>(
    room: &mut [u8],
    outcomes: Outcomes<'a>,
    push: impl Fn(&mut Text<'_>, Outcome<'a>),
) -> HeaderValue {
    let mut text = Text::at_end_of(room);
    for outcome in outcomes.iter().rev().filter(|outcome| !outcome.charge().is_shadow()) {
        if !text.is_empty() {
            text.part(b", ");
        }
        push(&mut text, outcome);
        // Names are made of characters that need no escape.
        text.part(b"\"");
        text.part(outcome.policy().name().as_bytes());
        text.part(b"\"");
    }
    HeaderValue::from_bytes(text.as_bytes()).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn push_policy(text: &mut Text<'_>, outcome: Outcome<'_>) {
    let quota = outcome.charge().quota();
    text.number(seconds_up(quota.window_micros()));
    text.part(b";w=");
    if let Some(unit) = outcome.policy().unit() {
        text.part(b"\"");
        text.part(unit.as_bytes());
        text.part(b";qu=\"");
    }
    text.number(quota.limit());
    text.part(b";q=");
}

fn push_partition(text: &mut Text<'_>, outcome: Outcome<'_>, secret: Option<Secret>) {
    if let Some(Secret(secret)) = secret {
        let digest = outcome.charge().key().digest_with(secret);
        text.part(b":");
        text.part(&base64::encode(&digest, true));
        text.part(b";pk=:");
    }
}

/// The effective window, in whole seconds: for so long the client can use no more than remains.
pub(super) fn window_seconds(standing: &Standing) -> u64 {
    (standing.next_after / 1_000_000).max(1)
}

/// Whole seconds, rounded up, at least 1.
pub(super) fn seconds_up(micros: u64) -> u64 {
    micros.div_ceil(1_000_000).max(1)
}
