//! `RateLimit-Policy` and `RateLimit`, as in draft-ietf-httpapi-ratelimit-headers-11.
//!
//! Both are Lists of Strings with parameters (RFC 9651). The Strings are policy names, which are
//! made of characters that need no escape.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    policy_cache,
    value::{whole_seconds, window_seconds},
};
use crate::decision::{Outcome, Outcomes};

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The names of both headers.
pub(super) const NAMES: [HeaderName; 2] = [RATELIMIT_POLICY, RATELIMIT];

/// The secret of the partition key. `Debug` does not print it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartitionSecret([u64; 2]);

impl PartitionSecret {
    pub(super) const fn new(secret: u128) -> Self {
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
pub(super) struct Draft11 {
    policy: HeaderValue,
    standing: String,
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
        let standing = list(outcomes, |text, outcome| {
            let standing = outcome.standing();
            let (mut remaining, mut seconds) = (itoa::Buffer::new(), itoa::Buffer::new());
            let remaining = remaining.format(standing.remaining);
            let (name, partition) = (outcome.policy().name(), partition(outcome, secret));
            // Units in flight come back when work ends, which no window says.
            let mut window = ["", ""];
            if !outcome.quota().is_concurrent() {
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
    ///
    /// If the application has sent one of them in the form of another draft, both stay as they are: members
    /// of two forms are no list, and a client reads neither.
    pub(super) fn append_to(self, headers: &mut HeaderMap, retry_after: Option<u64>) {
        let is_member = |value: &HeaderValue| value.as_bytes().starts_with(b"\"");
        if !NAMES.iter().flat_map(|name| headers.get_all(name)).all(is_member) {
            return;
        }
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
        let name = outcome.policy().name();
        let quota = outcome.quota();
        let limit = quota.limit();
        let default_unit = quota.is_concurrent().then_some("concurrent-requests");
        let unit = outcome.policy().unit().or(default_unit);
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
    let digest = |PartitionSecret(secret)| outcome.charge().key().digest_with(secret);
    secret.map_or(String::new(), |secret| format!(";pk=:{}:", STANDARD.encode(digest(secret))))
}

/// Concatenates the members of all outcomes that are not shadows.
fn list<'a>(
    outcomes: Outcomes<'a>,
    mut write_member: impl FnMut(&mut String, Outcome<'a>),
) -> String {
    let mut text = String::new();
    for outcome in outcomes.filter(|outcome| outcome.charge().is_live()) {
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
