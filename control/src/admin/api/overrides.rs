//! Overrides: a quota of a policy, or of one key under it, for a time.

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    body::{Change, End},
    lookup,
};
use crate::{
    Override, OverrideKind, Registered,
    admin::{Operator, config::Admin, problem::capitalized},
    web::Problem,
};

/// The quota that an [operator](Operator) asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct Set {
    policy: String,
    key: Option<String>,
    quota: String,
    reason: String,
    until: Option<End>,
    version: Option<u64>,
}

/// The [override](Override) that an operator ends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct Remove {
    policy: String,
    key: Option<String>,
    reason: String,
    version: Option<u64>,
}

/// Returns the [overrides](Override) in force.
pub(in crate::admin) async fn overrides(State(admin): State<Admin>) -> Json<Vec<Override>> {
    Json(admin.overrides.list())
}

/// Sets a quota for a policy or for one key, or switches a policy off.
pub(in crate::admin) async fn set_override(
    State(admin): State<Admin>,
    Extension(operator): Extension<Operator>,
    Change(set): Change<Set>,
) -> Result<Changed, Problem> {
    let registered = lookup::policy(&admin.registry, &set.policy)?;
    let kind = match set.quota.trim() {
        "off" if !registered.has_switch() => return Err(no_switch(&registered)),
        "off" => OverrideKind::Off,
        text => OverrideKind::Quota(text.parse().map_err(|error: plimsoll::Error| {
            Problem::invalid(
                capitalized(&error.to_string()),
                format!("a quota such as {}, or \"off\"", registered.policy().quota()),
            )
        })?),
    };
    let Set { policy, key, reason, until, version, .. } = set;
    let new = Override {
        key: key.clone(),
        until: until.map(|End(time)| time),
        ..Override::new(&policy, kind, operator.name(), &reason)
    };
    let change = admin.overrides.set(new, version).await?;
    Ok(changed(&policy, key.as_deref(), &change))
}

/// Returns the [problem](Problem) of a policy that stays on, because no rule asks whether it is switched off.
fn no_switch(registered: &Registered) -> Problem {
    let name = registered.policy().name();
    let detail = format!(
        "The policy {name:?} cannot be switched off, because no rule asks whether it is: its rules come from \
         the program, or it is on trial"
    );
    let allowed = "a higher quota; or in the program, `Rule::only` with `Registered::switch`";
    Problem::invalid(detail, allowed)
}

/// Ends an override.
pub(in crate::admin) async fn remove_override(
    State(admin): State<Admin>,
    Extension(operator): Extension<Operator>,
    Change(remove): Change<Remove>,
) -> Result<Changed, Problem> {
    let Remove { policy, key, reason, version } = &remove;
    let key = key.as_deref();
    // The configuration may have the policy no more.
    let change = admin.overrides.remove(policy, key, *version, operator.name(), reason).await?;
    Ok(changed(policy, key, &change))
}

/// The status and the body of the answer to a change.
pub(in crate::admin) type Changed = (StatusCode, Json<Value>);

/// Returns the answer to a change that is stored. The status is 202 if this instance has not applied it yet.
pub(super) fn changed(policy: &str, key: Option<&str>, change: &crate::Change) -> Changed {
    let answer = json!({
        "message": message(policy, key, change),
        "before": change.before,
        "after": change.after,
        "version": change.version,
        "in_force_before": change.in_force_before,
        "in_force_after": change.in_force_after,
        "not_applied": change.not_applied,
    });
    let status = if change.not_applied.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
    (status, Json(answer))
}

/// Returns what a change of an override has changed: the limit after, when it ends, and the limit before.
fn message(policy: &str, key: Option<&str>, change: &crate::Change) -> String {
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
    let until = entry.until.map(humantime::format_rfc3339_seconds);
    until.map(|until| format!(" until {until}")).unwrap_or_default()
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
