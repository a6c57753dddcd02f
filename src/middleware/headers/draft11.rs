//! `RateLimit-Policy` and `RateLimit`, as in draft-ietf-httpapi-ratelimit-headers-11.
//!
//! Both are Lists of Strings with parameters (RFC 9651). The Strings are policy names, which are
//! made of characters that need no escape.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    headers::PartitionSecret,
    policy_cache,
    retry_after::{whole_seconds, window_seconds},
};
use crate::decision::{Outcome, Outcomes};

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The names of both headers.
pub(super) const NAMES: [HeaderName; 2] = [RATELIMIT_POLICY, RATELIMIT];

/// The values of both headers.
#[derive(Debug)]
pub(super) struct Draft11 {
    policy: HeaderValue,
    standing: HeaderValue,
    /// The longest effective window (`t`) in `standing`, in seconds.
    longest_window: u64,
}

impl Draft11 {
    pub(super) fn new(
        outcomes: Outcomes<'_>,
        retry_after: Option<u64>,
        secret: Option<PartitionSecret>,
    ) -> Self {
        let policy = match secret {
            None => policy_cache::policies(outcomes, || policy_list(outcomes, None)),
            // The value contains the partition key, so it cannot be shared between keys.
            Some(_) => policy_list(outcomes, secret),
        };
        let mut longest_window = 0;
        let standing = list(outcomes, |outcome| {
            let standing = outcome.standing();
            // Retry-After must not be earlier than the end of a window shown (section 5 of the
            // draft). A shorter window is true as well.
            let window = window_seconds(standing).min(retry_after.unwrap_or(u64::MAX));
            longest_window = longest_window.max(window);
            let (mut remaining, mut seconds) = (itoa::Buffer::new(), itoa::Buffer::new());
            let parts = [
                "\"",
                outcome.policy().name(),
                "\";r=",
                remaining.format(standing.remaining),
                ";t=",
                seconds.format(window),
            ];
            parts.concat() + &partition(outcome, secret)
        });
        Self { policy, standing, longest_window }
    }

    /// Appends both headers to those of inner layers. `retry_after` is the `Retry-After` of an
    /// inner layer, in seconds, which no window may exceed.
    pub(super) fn append_to(self, headers: &mut HeaderMap, retry_after: Option<u64>) {
        let standing = match retry_after {
            Some(seconds) if seconds < self.longest_window => cap_windows(&self.standing, seconds),
            _ => self.standing,
        };
        headers.append(RATELIMIT_POLICY, self.policy);
        headers.append(RATELIMIT, standing);
    }
}

fn policy_list(outcomes: Outcomes<'_>, secret: Option<PartitionSecret>) -> HeaderValue {
    list(outcomes, |outcome| {
        let name = outcome.policy().name();
        let quota = outcome.charge().quota();
        let unit = outcome.policy().unit().map_or(String::new(), |unit| format!(";qu=\"{unit}\""));
        let (limit, window) = (quota.limit(), whole_seconds(quota.window_micros()));
        format!("\"{name}\";q={limit}{unit};w={window}") + &partition(outcome, secret)
    })
}

/// Returns the partition key as a parameter: a Byte Sequence (RFC 9651, section 3.3.5).
fn partition(outcome: Outcome<'_>, secret: Option<PartitionSecret>) -> String {
    secret.map_or(String::new(), |PartitionSecret(secret)| {
        let digest = outcome.charge().key().digest_with(secret);
        format!(";pk=:{}:", STANDARD.encode(digest))
    })
}

/// Joins the members of all outcomes that are not shadows.
#[inline]
fn list<'a>(outcomes: Outcomes<'a>, member: impl FnMut(Outcome<'a>) -> String) -> HeaderValue {
    let shown = outcomes.iter().filter(|outcome| !outcome.charge().is_shadow());
    let mut members = shown.map(member);
    let mut text = members.next().unwrap_or_default();
    for member in members {
        text.push_str(", ");
        text.push_str(&member);
    }
    // Policy names are visible ASCII, which a header value may hold.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Returns the same members with no window longer than `max_seconds`.
#[cold]
fn cap_windows(members: &HeaderValue, max_seconds: u64) -> HeaderValue {
    let text = members.to_str().unwrap_or_default();
    let capped = text.split(", ").map(|member| {
        let Some((head, tail)) = member.split_once(";t=") else { return member.to_owned() };
        let (window, tail) = tail.split_at(tail.find(';').unwrap_or(tail.len()));
        let longer = window.parse().is_ok_and(|window: u64| window > max_seconds);
        if longer { format!("{head};t={}{tail}", max_seconds.max(1)) } else { member.to_owned() }
    });
    let capped = capped.collect::<Vec<_>>().join(", ");
    HeaderValue::from_str(&capped).unwrap_or_else(|_| members.clone())
}
