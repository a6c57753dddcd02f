//! Overrides: a quota of a policy, or of one key under it, for a time.

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    body::{self, Change},
    lookup,
};
use crate::{
    NewOverride, Override, OverrideKind, Registered,
    admin::{
        Operator,
        config::Shared,
        problem::{Problem, capitalized},
        time,
    },
};

/// The quota that an operator asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct Set {
    policy: String,
    key: Option<String>,
    quota: String,
    reason: String,
    until: Option<Until>,
    version: Option<u64>,
}

/// The override that an operator ends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct Remove {
    policy: String,
    key: Option<String>,
    reason: String,
}

/// The end of an override, as operators and programs write it.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Until {
    Text(String),
    /// Milliseconds since the Unix epoch.
    Millis(u64),
}

/// Returns the overrides in force.
pub(in crate::admin) async fn overrides(State(shared): State<Shared>) -> Json<Vec<Override>> {
    Json(shared.overrides.list())
}

/// Sets a quota for a policy or for one key, or switches a policy off.
pub(in crate::admin) async fn set_override(
    State(shared): State<Shared>,
    Extension(operator): Extension<Operator>,
    Change(set): Change<Set>,
) -> Result<Changed, Problem> {
    let registered = lookup::policy(&shared.registry, &set.policy)?;
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
    let (policy, key) = (set.policy.clone(), set.key.clone());
    let new = NewOverride {
        policy: set.policy,
        key: set.key,
        kind,
        until: until(set.until)?,
        by: operator.name().into(),
        reason: body::reason(&set.reason)?.into(),
        version: set.version,
    };
    let before = registered.policy().quota();
    let now = match kind {
        OverrideKind::Off => "off".to_owned(),
        _ => set.quota,
    };
    let change = shared.overrides.set(new).await?;
    let replaced = change.before.as_ref();
    let was = replaced.map_or_else(|| before.to_string(), |it| it.kind.to_string());
    let message = format!("{}: {now}, before {was}", whose(&policy, key.as_deref()));
    Ok(changed(message, &change))
}

/// Returns the problem of a policy that stays on, because no rule asks whether it is switched off.
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
    State(shared): State<Shared>,
    Extension(operator): Extension<Operator>,
    Change(remove): Change<Remove>,
) -> Result<Changed, Problem> {
    let Remove { policy, key, reason } = &remove;
    let reason = body::reason(reason)?;
    // The configuration may have the policy no more.
    let change = shared.overrides.remove(policy, key.as_deref(), operator.name(), reason).await?;
    let after = change.in_force_after.as_ref();
    let after = after.map_or_else(String::new, |it| format!(", {} is in force", it.limit));
    let message = format!("{}: the override has ended{after}", whose(policy, key.as_deref()));
    Ok(changed(message, &change))
}

/// Reads the end of an override.
pub(super) fn until(until: Option<Until>) -> Result<Option<std::time::SystemTime>, Problem> {
    let now = time::now();
    let (text, time) = match until {
        None => return Ok(None),
        Some(Until::Text(text)) => (format!("{text:?}"), time::until(&text, now)),
        Some(Until::Millis(millis)) => (millis.to_string(), time::at_millis(millis, now)),
    };
    let invalid = || Problem::invalid(format!("\"until\" is {text}"), time::ALLOWED);
    time.ok_or_else(invalid).map(Some)
}

/// Names the policy, or the key under it.
pub(super) fn whose(policy: &str, key: Option<&str>) -> String {
    key.map_or_else(|| policy.to_owned(), |key| format!("{key} under {policy}"))
}

/// The status and the body of the answer to a change.
pub(in crate::admin) type Changed = (StatusCode, Json<Value>);

/// Returns the answer to a change that is stored. The status is 202 if this instance has not applied it yet.
pub(super) fn changed(mut message: String, change: &crate::Change) -> Changed {
    if let Some(cause) = &change.not_applied {
        message += &format!("; stored, and this instance tries again to apply it: {cause}");
    }
    let answer = json!({
        "message": message,
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
