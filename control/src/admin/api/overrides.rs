//! Overrides: a quota of a policy, or of one key under it, for a time.

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    body::{Change, End, KeyText},
    lookup, message,
};
use crate::{
    NewOverride, Override, OverrideKind, Registered,
    admin::{Operator, config::Admin, problem::capitalized},
    web::Problem,
};

/// The quota that an operator asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct Set {
    policy: String,
    key: Option<KeyText>,
    quota: String,
    reason: String,
    until: Option<End>,
    version: Option<u64>,
}

/// The override that an operator ends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct Remove {
    policy: String,
    key: Option<KeyText>,
    reason: String,
    version: Option<u64>,
}

/// Returns the overrides in force.
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
    let (policy, key) = (set.policy.clone(), set.key.map(|KeyText(key)| key));
    let change = admin.overrides.set(NewOverride {
        policy: set.policy,
        key: key.clone(),
        kind,
        until: set.until.map(|End(time)| time),
        by: operator.name().into(),
        reason: set.reason,
        version: set.version,
    });
    Ok(changed(&policy, key.as_deref(), &change.await?))
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
    State(admin): State<Admin>,
    Extension(operator): Extension<Operator>,
    Change(remove): Change<Remove>,
) -> Result<Changed, Problem> {
    let Remove { policy, key, reason, version } = &remove;
    let (key, by) = (key.as_ref().map(|KeyText(key)| key.as_str()), operator.name());
    // The configuration may have the policy no more.
    let change = admin.overrides.remove_version(policy, key, *version, by, reason).await?;
    Ok(changed(policy, key, &change))
}

/// The status and the body of the answer to a change.
pub(in crate::admin) type Changed = (StatusCode, Json<Value>);

/// Returns the answer to a change that is stored. The status is 202 if this instance has not applied it yet.
pub(super) fn changed(policy: &str, key: Option<&str>, change: &crate::Change) -> Changed {
    let answer = json!({
        "message": message::of_change(policy, key, change),
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
