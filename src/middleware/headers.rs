//! Rate limit headers: `RateLimit-Policy` and `RateLimit` as in draft-ietf-httpapi-ratelimit-headers-11,
//! `X-RateLimit-*`, and `Retry-After`.

use std::{cell::RefCell, fmt, str, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};

use crate::{
    base64,
    clock::{Timestamp, micros_up},
    decision::{Decision, Denied, Outcome, Outcomes, Standing, Verdict},
    policy::Policy,
    quota::Quota,
    random,
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
    /// Each header has a member for each [`Policy`]: a [`Quota`] of
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
    /// They show one [`Policy`]: the policy that denied the request, or else the policy with the
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
        let draft11: &[_] = if self.draft11 { &RATELIMIT_NAMES } else { &[] };
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
        let mut headers = match decision {
            Decision::Allowed(_) => self.for_decision(decision),
            Decision::Denied(denied) => self.for_denied(denied),
        };
        let mut map = HeaderMap::new();
        headers.add_to(&mut map);
        map
    }

    /// Returns whether the set is [empty](Self::none).
    pub(super) fn is_none(&self) -> bool {
        !self.draft11 && self.x_ratelimit.is_none()
    }

    /// Returns the headers for a decision that admits the request.
    pub(super) fn for_decision(&self, decision: &Decision<'_>) -> ResponseHeaders {
        self.with(decision.outcomes(), decision.binding(), decision.time(), None)
    }

    /// Returns the headers for a denial.
    pub(super) fn for_denied(&self, denied: &Denied<'_>) -> ResponseHeaders {
        let binding = denied.binding();
        self.with(denied.outcomes(), binding, denied.time(), binding.and_then(retry_after))
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
pub(super) struct ResponseHeaders {
    draft11: Option<Draft11>,
    x_ratelimit: Option<XRateLimit>,
}

impl ResponseHeaders {
    /// Adds the headers to the headers of inner layers: list members are appended, and `X-RateLimit-*` is
    /// replaced if this layer has fewer units left.
    pub(super) fn add_to(&mut self, headers: &mut HeaderMap) {
        let draft11 = self.draft11.as_ref().map_or(0, |_| RATELIMIT_NAMES.len());
        let x_ratelimit = self.x_ratelimit.as_ref().map_or(0, |_| X_RATELIMIT_NAMES.len());
        if draft11 + x_ratelimit == 0 {
            return;
        }
        let inner = InnerHeaders::of(headers);
        headers.reserve(draft11 + x_ratelimit + LATER_HEADERS);
        if let Some(draft11) = self.draft11.take()
            && !inner.has_other_draft
        {
            draft11.append_to(headers, inner.retry_after);
        }
        if let Some(x_ratelimit) = &self.x_ratelimit
            && inner.remaining.is_none_or(|inner| x_ratelimit.remaining < inner)
        {
            x_ratelimit.insert_into(headers);
        }
    }
}

/// The headers of inner layers and of the application on which the headers of this layer depend.
#[derive(Default)]
struct InnerHeaders {
    /// In seconds.
    retry_after: Option<u64>,
    remaining: Option<u64>,
    /// True if a header of the draft has the form of another one. The members of two forms are no list, and a client
    /// reads neither.
    has_other_draft: bool,
}

impl InnerHeaders {
    /// Finds them in one pass: a response has few headers, and each lookup hashes a name.
    fn of(headers: &HeaderMap) -> Self {
        let mut inner = Self::default();
        for (name, value) in headers {
            if *name == RETRY_AFTER {
                inner.retry_after = headers.get(name).and_then(parse);
            } else if *name == X_RATELIMIT_REMAINING {
                inner.remaining = headers.get(name).and_then(parse);
            } else if RATELIMIT_NAMES.contains(name) {
                inner.has_other_draft |= !value.as_bytes().starts_with(b"\"");
            }
        }
        inner
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
            ResetFormat::Seconds => whole_seconds(reset_after),
            ResetFormat::Epoch => whole_seconds(now.as_micros() + reset_after),
        };
        Self { limit: standing.limit, remaining: standing.remaining, reset }
    }

    fn insert_into(&self, headers: &mut HeaderMap) {
        headers.insert(X_RATELIMIT_LIMIT, number(self.limit));
        headers.insert(X_RATELIMIT_REMAINING, number(self.remaining));
        headers.insert(X_RATELIMIT_RESET, number(self.reset));
    }
}

// Both headers of the draft are Lists of Strings with parameters (RFC 9651). The Strings are policy names, which are
// made of characters that need no escape.
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The names of both headers.
const RATELIMIT_NAMES: [HeaderName; 2] = [RATELIMIT_POLICY, RATELIMIT];

/// The secret of the partition key. `Debug` does not print it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PartitionSecret([u64; 2]);

impl PartitionSecret {
    const fn new(secret: u128) -> Self {
        Self([secret as u64, (secret >> 64) as u64])
    }
}

impl fmt::Debug for PartitionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartitionSecret")
    }
}

/// Both headers. The second one is a text, because an inner layer may cap its windows.
#[derive(Debug)]
struct Draft11 {
    policy: HeaderValue,
    standing: String,
    /// The longest effective window (`t`) in `standing`, in seconds.
    longest_window: u64,
}

impl Draft11 {
    fn new(
        outcomes: Outcomes<'_>,
        retry_after: Option<u64>,
        secret: Option<PartitionSecret>,
    ) -> Self {
        let policy = match secret {
            None => cached_policies(outcomes, || policy_list(outcomes, None)),
            // The value contains the partition key, so it cannot be shared between keys.
            Some(_) => policy_list(outcomes, secret),
        };
        let mut longest_window = 0;
        let standing = list(outcomes, |text, outcome| {
            let name = outcome.charge().policy().name();
            let standing = outcome.standing();
            let partition = partition(outcome, secret);
            let mut remaining = itoa::Buffer::new();
            let remaining = remaining.format(standing.remaining);
            let mut seconds = itoa::Buffer::new();
            // Units in flight come back when work ends, which no window says.
            let mut window = ["", ""];
            if !outcome.charge().quota().is_concurrent() {
                // Retry-After must not be earlier than the end of a window shown (section 5 of the
                // draft). A shorter window is true as well.
                let shown = window_seconds(standing).min(retry_after.unwrap_or(u64::MAX));
                longest_window = longest_window.max(shown);
                window = [";t=", seconds.format(shown)];
            }
            push_all(text, &["\"", name, "\";r=", remaining, window[0], window[1], &partition]);
        });
        Self { policy, standing, longest_window }
    }

    /// Appends both headers to the headers of inner layers. `retry_after` is the `Retry-After` of an
    /// inner layer, in seconds, which no window may exceed.
    fn append_to(self, headers: &mut HeaderMap, retry_after: Option<u64>) {
        let standing = match retry_after {
            Some(seconds) if seconds < self.longest_window => cap_windows(&self.standing, seconds),
            _ => self.standing,
        };
        headers.append(RATELIMIT_POLICY, self.policy);
        headers.append(RATELIMIT, header_value(standing));
    }
}

/// Appends texts with at most one allocation and without spare capacity, so that the text of one member
/// becomes a header value without another one.
fn push_all(text: &mut String, parts: &[&str]) {
    text.reserve_exact(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| text.push_str(part));
}

fn policy_list(outcomes: Outcomes<'_>, secret: Option<PartitionSecret>) -> HeaderValue {
    let text = list(outcomes, |text, outcome| {
        let name = outcome.charge().policy().name();
        let quota = outcome.charge().quota();
        let limit = quota.limit();
        let default_unit = quota.is_concurrent().then_some("concurrent-requests");
        let unit = outcome.charge().policy().unit().or(default_unit);
        let unit = unit.map_or(String::new(), |unit| format!(";qu=\"{unit}\""));
        let window = (!quota.is_concurrent()).then(|| whole_seconds(quota.window_micros()));
        let window = window.map_or(String::new(), |window| format!(";w={window}"));
        let partition = partition(outcome, secret);
        text.push_str(&format!("\"{name}\";q={limit}{unit}{window}{partition}"));
    });
    header_value(text)
}

/// Returns the partition key as a parameter, if there is a secret: a Byte Sequence (RFC 9651, section 3.3.5).
fn partition(outcome: Outcome<'_>, secret: Option<PartitionSecret>) -> String {
    secret.map_or(String::new(), |PartitionSecret(secret)| {
        let digest = outcome.charge().key().digest_with(secret);
        format!(";pk=:{}:", base64::padded(&digest))
    })
}

/// Concatenates the members of all outcomes that are not shadows.
fn list<'a>(
    outcomes: Outcomes<'a>,
    mut write_member: impl FnMut(&mut String, Outcome<'a>),
) -> String {
    let mut text = String::new();
    for outcome in shown(outcomes) {
        if !text.is_empty() {
            text.push_str(", ");
        }
        write_member(&mut text, outcome);
    }
    text
}

fn header_value(text: String) -> HeaderValue {
    // Policy names are visible ASCII, which a header value may hold.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Returns the same members with no window longer than `max_seconds`.
fn cap_windows(members: &str, max_seconds: u64) -> String {
    let capped = members.split(", ").map(|member| {
        let Some((head, tail)) = member.split_once(";t=") else { return member.to_owned() };
        let (window, tail) = tail.split_at(tail.find(';').unwrap_or(tail.len()));
        let longer = window.parse().is_ok_and(|window: u64| window > max_seconds);
        if longer { format!("{head};t={}{tail}", max_seconds.max(1)) } else { member.to_owned() }
    });
    capped.collect::<Vec<_>>().join(", ")
}

/// The number of values that a thread keeps. A value that falls into an occupied slot
/// replaces the older one. If keys have [quotas of their own](crate::Charge::with_quota), each quota
/// has a slot, so that customers with a few different quotas do not replace each other's values.
const SLOTS: usize = 64;

thread_local! {
    /// The cache of `RateLimit-Policy`, which stays the same until a policy changes. A clone of a value costs an atomic
    /// increment instead of writing, checking and allocating the text (`cargo bench --bench layer`: the row of the
    /// default set). Each thread has values of its own, so that threads do not share a reference count.
    static POLICIES: RefCell<[Option<CachedPolicies>; SLOTS]> = const { RefCell::new([const { None }; SLOTS]) };
}

/// The `RateLimit-Policy` of some policies, and the quotas that it was made for.
struct CachedPolicies {
    policies: Vec<(Policy, Quota)>,
    value: HeaderValue,
}

impl CachedPolicies {
    fn is_for(&self, outcomes: Outcomes<'_>) -> bool {
        let mut cached = self.policies.iter();
        shown(outcomes).map(Outcome::charge).all(|charge| {
            cached.next().is_some_and(|(policy, quota)| {
                policy.is_clone_of(charge.policy()) && quota == charge.quota()
            })
        }) && cached.next().is_none()
    }
}

/// Returns the `RateLimit-Policy` of these outcomes. If this thread does not have it, `make`
/// creates it.
fn cached_policies(outcomes: Outcomes<'_>, make: impl Fn() -> HeaderValue) -> HeaderValue {
    let Some(first) = shown(outcomes).next() else { return make() };
    let slot = slot(first.charge().policy(), first.charge().quota());
    let cached = POLICIES.try_with(|slots| {
        let slot = &mut slots.try_borrow_mut().ok()?[slot];
        if !slot.as_ref().is_some_and(|cached| cached.is_for(outcomes)) {
            let charges = shown(outcomes).map(Outcome::charge);
            let policies = charges.map(|charge| (charge.policy().clone(), *charge.quota()));
            let policies = policies.collect();
            *slot = Some(CachedPolicies { policies, value: make() });
        }
        slot.as_ref().map(|cached| cached.value.clone())
    });
    // A thread that is ending may have dropped its values already.
    cached.ok().flatten().unwrap_or_else(make)
}

/// Returns the slot of a policy under a quota.
fn slot(policy: &Policy, quota: &Quota) -> usize {
    // 2^64 divided by the golden ratio: the upper bits of a product depend on all bits of the limit.
    let hash = policy.id() ^ quota.limit().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (u64::BITS - SLOTS.ilog2())) as usize
}

/// Returns the outcomes that headers show: shadows and trials are not shown.
fn shown<'a>(outcomes: Outcomes<'a>) -> impl Iterator<Item = Outcome<'a>> {
    outcomes.filter(|outcome| outcome.charge().is_live())
}

/// Returns the `Retry-After` of a denial with this binding outcome in seconds, without jitter. It is the wait rounded
/// up, and at least the effective window that `RateLimit` shows.
///
/// It is `None` if waiting does not help, or if the store named no wait.
pub(super) fn retry_after(binding: Outcome<'_>) -> Option<u64> {
    if binding.verdict() == Verdict::OverCapacity {
        return None;
    }
    let wait = whole_seconds(binding.wait_micros()?);
    if is_estimate(binding) {
        return Some(wait);
    }
    Some(wait.max(window_seconds(binding.standing())))
}

/// Returns whether the wait is an estimate: a unit in flight has to be released first. Clients that are
/// denied at the same time then need a jitter.
pub(super) fn is_estimate(binding: Outcome<'_>) -> bool {
    binding.charge().quota().is_concurrent()
}

/// Adds a random part of `jitter` to a wait of `seconds`.
///
/// `Retry-After` counts whole seconds, so `jitter` is rounded up to whole seconds.
pub(super) fn with_jitter(seconds: u64, jitter: Duration) -> u64 {
    let jitter = jitter.as_secs().saturating_add(u64::from(jitter.subsec_nanos() > 0));
    seconds.saturating_add(random::up_to(jitter))
}

/// Returns the effective window in whole seconds: the time in which the client can use no more
/// units than remain.
fn window_seconds(standing: &Standing) -> u64 {
    (micros_up(standing.next_after) / 1_000_000).max(1)
}

/// Rounds microseconds up to whole seconds, at least 1.
fn whole_seconds(micros: u64) -> u64 {
    micros.div_ceil(1_000_000).max(1)
}

/// Returns a number as a header value. Up to 999, it allocates nothing, and above it once, where [`HeaderValue::from`]
/// needs two allocations (`cargo bench --bench layer`).
pub(super) fn number(number: u64) -> HeaderValue {
    // The first digit that is no leading zero.
    let start = match number {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let place = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(3);
    match DIGITS.get(place.saturating_add(start)..place.saturating_add(3)) {
        Some(digits) => HeaderValue::from_static(digits),
        None => HeaderValue::from_str(itoa::Buffer::new().format(number))
            .unwrap_or_else(|_| HeaderValue::from(number)),
    }
}

/// Parses a header value as a number.
fn parse(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

/// Three digits for each number below 1000.
static DIGITS: &str = match str::from_utf8(&DIGIT_BYTES) {
    Ok(digits) => digits,
    Err(_) => "",
};

static DIGIT_BYTES: [u8; 3_000] = {
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
