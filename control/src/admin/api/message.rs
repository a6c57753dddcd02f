//! The sentence that an operator reads after a change.

use std::time::SystemTime;

use crate::{Change, Override, OverrideKind};

/// Returns what a change of an override has changed: the limit after, when it ends, and the limit before.
pub(super) fn of_change(policy: &str, key: Option<&str>, change: &Change) -> String {
    let before = change.in_force_before.as_deref().map(said);
    let in_force = change.in_force_after.as_deref();
    let mut message = whose(policy, key);
    match &change.after {
        Some(after) => {
            message += &format!(": {}{}", said(&after.kind.to_string()), until(after));
            message += &before.map(|it| format!(", before {it}")).unwrap_or_default();
            // A policy that is switched off limits no key.
            if in_force.is_some_and(|it| it == "off") && after.kind != OverrideKind::Off {
                message += ". Not in force yet: the policy is switched off";
            }
        }
        None => {
            message += ": the override has ended";
            if let Some(in_force) = in_force {
                message += &format!(", {in_force} is in force");
            }
        }
    }
    if let Some(cause) = &change.not_applied {
        message += &format!("; stored, and this instance tries again to apply it: {cause}");
    }
    message
}

/// Names the policy, or the key under it. A key that cannot be read as it is gets quotes.
pub(super) fn whose(policy: &str, key: Option<&str>) -> String {
    let Some(key) = key else { return policy.to_owned() };
    let quoted = format!("{key:?}");
    let is_plain = !key.is_empty() && key.trim() == key && quoted.len() == key.len() + 2;
    format!("{} under {policy}", if is_plain { key } else { &quoted })
}

/// Returns a limit as a state: a block is an action of the operator.
fn said(limit: &str) -> &str {
    if limit == OverrideKind::Block.to_string() { "blocked" } else { limit }
}

fn until(entry: &Override) -> String {
    let time = |it: SystemTime| format!(" until {}", humantime::format_rfc3339_seconds(it));
    entry.until.map(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_be_read_is_quoted() {
        assert_eq!(whose("api", None), "api");
        assert_eq!(whose("api", Some("acme")), "acme under api");
        assert_eq!(whose("api", Some("Café 9")), "Café 9 under api");
        for (key, shown) in [
            ("", "\"\" under api"),
            (" a", "\" a\" under api"),
            ("a\u{202e}b\n", "\"a\\u{202e}b\\n\" under api"),
            ("a\"b", "\"a\\\"b\" under api"),
        ] {
            assert_eq!(whose("api", Some(key)), shown);
        }
    }
}
