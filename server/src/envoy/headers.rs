//! The headers that responses get.

use std::time::Duration;

use envoy_types::pb::envoy::{
    config::core::v3::HeaderValue, service::ratelimit::v3::rate_limit_response::Code,
};
use plimsoll::decision::Standing;

use super::{outcome::LineOutcome, request::Line};

/// Returns `ratelimit-policy` and `ratelimit` of draft-ietf-httpapi-ratelimit-headers-11, and `retry-after` for a
/// denial.
pub(super) fn headers(
    lines: &[Line<'_>],
    outcomes: &[LineOutcome],
    code: Code,
) -> Vec<HeaderValue> {
    let counted = lines.iter().zip(outcomes).filter_map(|(line, outcome)| match line {
        Line::Limited(limited) if !limited.is_shadow => {
            Some((limited, outcome.quota?, outcome, outcome.standing.as_ref()?))
        }
        _ => None,
    });
    let denied = counted.clone().filter(|(_, _, outcome, _)| !outcome.has_passed);
    let waits = denied.map(|(_, _, _, standing)| retry_after(standing));
    let wait = waits.max().filter(|_| code == Code::OverLimit);
    let mut policies = String::new();
    let mut standings = String::new();
    for (limited, quota, _, standing) in counted {
        let name = limited.rule.map_or("override", |rule| &*rule.header_name);
        for text in [&mut policies, &mut standings] {
            text.push_str(if text.is_empty() { "\"" } else { ", \"" });
            text.push_str(name);
            text.push('"');
        }
        push(&mut policies, ";q=", quota.limit());
        push(&mut standings, ";r=", standing.remaining);
        // The effective window must not end after `retry-after`.
        let window = standing.next_after.as_secs().max(1).min(wait.unwrap_or(u64::MAX));
        push(&mut policies, ";w=", whole_seconds(quota.window()));
        push(&mut standings, ";t=", window);
    }
    let mut headers = Vec::new();
    if !policies.is_empty() {
        headers.push(header("ratelimit-policy", policies));
        headers.push(header("ratelimit", standings));
    }
    if let Some(seconds) = wait {
        headers.push(header("retry-after", seconds.to_string()));
    }
    headers
}

/// Appends a parameter: its name with the signs around it, and a number.
fn push(text: &mut String, name: &str, number: u64) {
    text.push_str(name);
    text.push_str(&number.to_string());
}

fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value, raw_value: Vec::new() }
}

/// Returns the seconds after which a denied line may pass.
pub(super) fn retry_after(standing: &Standing) -> u64 {
    let wait = standing.retry_after.unwrap_or(standing.next_after);
    whole_seconds(wait).max(1)
}

/// Returns the wait in seconds, rounded up.
pub(super) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
