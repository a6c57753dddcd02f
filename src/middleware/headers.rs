//! Rate limit headers: `RateLimit-Policy` and `RateLimit` as in the IETF draft, version 11, and the
//! `X-RateLimit-*` of custom.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};
use smallvec::SmallVec;

use super::base64;
use crate::{
    decision::{Decision, Outcome},
    standing::Standing,
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
    /// A window that is not a whole number of seconds is rounded up.
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
        let visible = || decision.outcomes().iter().filter(|outcome| !outcome.charge().is_shadow());
        let mut stamp = Stamp { draft11: None, x_ratelimit: None };
        let Some(binding) = decision.binding() else { return stamp };
        if self.draft11 {
            stamp.draft11 = Some((
                list(visible(), |text, outcome| {
                    push_policy(text, outcome);
                    push_partition(text, outcome, self.partition);
                }),
                list(visible(), |text, outcome| {
                    push_standing(text, outcome, retry_after);
                    push_partition(text, outcome, self.partition);
                }),
            ));
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
    draft11: Option<(HeaderValue, HeaderValue)>,
    x_ratelimit: Option<Tightest>,
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
        headers.reserve(2 * usize::from(self.draft11.is_some()) + 3);
        if let Some((policy, standing)) = self.draft11 {
            let retry_after = headers.get(RETRY_AFTER).and_then(number);
            headers.append(POLICY, policy);
            headers.append(
                STANDING,
                match retry_after {
                    Some(seconds) => cap_windows(&standing, seconds),
                    None => standing,
                },
            );
        }
        if let Some(Tightest { limit, remaining, reset }) = self.x_ratelimit {
            let inner = headers.get(&X_REMAINING).and_then(number);
            if inner.is_none_or(|inner| remaining < inner) {
                headers.insert(X_LIMIT, value(limit));
                headers.insert(X_REMAINING, value(remaining));
                headers.insert(X_RESET, value(reset));
            }
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

/// The text of a header before it is copied into its value, which allocates once.
type Text = SmallVec<[u8; 96]>;

/// A structured field: a List with a member for each outcome.
fn list<'a>(
    outcomes: impl Iterator<Item = Outcome<'a>>,
    push: impl Fn(&mut Text, Outcome<'_>),
) -> HeaderValue {
    let mut text = Text::new();
    for outcome in outcomes {
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        // Names are made of characters that need no escape.
        text.push(b'"');
        text.extend_from_slice(outcome.policy().name().as_bytes());
        text.push(b'"');
        push(&mut text, outcome);
    }
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn push_policy(text: &mut Text, outcome: Outcome<'_>) {
    let quota = outcome.charge().quota();
    push_parameter(text, b";q=", quota.limit());
    if let Some(unit) = outcome.policy().unit() {
        text.extend_from_slice(b";qu=\"");
        text.extend_from_slice(unit.as_bytes());
        text.push(b'"');
    }
    push_parameter(text, b";w=", seconds_up(quota.window_micros()));
}

fn push_standing(text: &mut Text, outcome: Outcome<'_>, retry_after: Option<u64>) {
    let standing = outcome.standing();
    push_parameter(text, b";r=", standing.remaining);
    // Retry-After must not point before the end of any window shown; a shorter window stays true.
    let window = window_seconds(standing).min(retry_after.unwrap_or(u64::MAX));
    push_parameter(text, b";t=", window);
}

fn push_partition(text: &mut Text, outcome: Outcome<'_>, secret: Option<Secret>) {
    if let Some(Secret(secret)) = secret {
        text.extend_from_slice(b";pk=:");
        let digest = outcome.charge().key().digest_with(secret);
        text.extend_from_slice(&base64::encode(&digest, true));
        text.push(b':');
    }
}

#[inline]
fn push_parameter(text: &mut Text, name: &[u8; 3], number: u64) {
    text.extend_from_slice(name);
    with_digits(number, |digits| text.extend_from_slice(digits));
}

/// The effective window, in whole seconds: for so long the client can use no more than remains.
pub(super) fn window_seconds(standing: &Standing) -> u64 {
    (standing.next_after / 1_000_000).max(1)
}

/// Whole seconds, rounded up, at least 1.
pub(super) fn seconds_up(micros: u64) -> u64 {
    micros.div_ceil(1_000_000).max(1)
}

/// Appends a number in decimal.
pub(super) fn push_number(text: &mut Vec<u8>, number: u64) {
    with_digits(number, |digits| text.extend_from_slice(digits));
}

/// A number as a header value. Small ones, which most are, allocate nothing.
pub(super) fn value(number: u64) -> HeaderValue {
    let small = || {
        let digits = DIGITS.get(3 * usize::try_from(number).ok()?..)?.first_chunk::<3>()?;
        let leading = usize::from(number < 10) + usize::from(number < 100);
        std::str::from_utf8(&digits[leading..]).ok()
    };
    small().map_or_else(|| HeaderValue::from(number), HeaderValue::from_static)
}

/// Three digits for each number below 1000.
static DIGITS: [u8; 3_000] = {
    let mut digits = [0; 3_000];
    let mut number = 0;
    while number < 1_000 {
        digits[3 * number] = b'0' + (number / 100) as u8;
        digits[3 * number + 1] = b'0' + (number / 10 % 10) as u8;
        digits[3 * number + 2] = b'0' + (number % 10) as u8;
        number += 1;
    }
    digits
};

/// Hands over a number in decimal.
#[inline]
pub(super) fn with_digits(mut number: u64, write: impl FnOnce(&[u8])) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    write(&digits[first..]);
}
