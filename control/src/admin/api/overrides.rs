//! Overrides: a quota of a policy, or of one key under it, for a time.

use std::time::SystemTime;

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    body::{self, Change},
    fields::{Fields, FromFields},
    lookup, message,
};
use crate::{
    NewOverride, Override, OverrideKind, Registered,
    admin::{
        Operator,
        config::Shared,
        problem::{Problem, capitalized},
        time::{self, NoEnd},
    },
};

/// The quota that an operator asks for.
pub(in crate::admin) struct Set {
    policy: String,
    key: Option<String>,
    quota: String,
    reason: String,
    until: Option<SystemTime>,
    version: Option<u64>,
}

/// The override that an operator ends.
pub(in crate::admin) struct Remove {
    policy: String,
    key: Option<String>,
    reason: String,
    version: Option<u64>,
}

impl FromFields for Set {
    const NAMES: &'static [&'static str] =
        &["policy", "key", "quota", "reason", "until", "version"];

    fn from_fields(fields: &mut Fields) -> Result<Self, Problem> {
        Ok(Self {
            policy: fields.text("policy")?,
            key: fields.optional_key()?,
            quota: fields.text("quota")?,
            reason: fields.text("reason")?,
            until: until(fields)?,
            version: fields.version()?,
        })
    }
}

impl FromFields for Remove {
    const NAMES: &'static [&'static str] = &["policy", "key", "reason", "version"];

    fn from_fields(fields: &mut Fields) -> Result<Self, Problem> {
        Ok(Self {
            policy: fields.text("policy")?,
            key: fields.optional_key()?,
            reason: fields.text("reason")?,
            version: fields.version()?,
        })
    }
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
        until: set.until,
        by: operator.name().into(),
        reason: body::reason(&set.reason)?.into(),
        version: set.version,
    };
    let change = shared.overrides.set(new).await?;
    Ok(changed(&policy, key.as_deref(), &change))
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
    let Remove { policy, key, reason, version } = &remove;
    let (key, reason, by) = (key.as_deref(), body::reason(reason)?, operator.name());
    // The configuration may have the policy no more.
    let change = shared.overrides.remove_version(policy, key, *version, by, reason).await?;
    Ok(changed(policy, key, &change))
}

/// Reads the end of an override: a text as operators write it, or milliseconds since the Unix epoch.
pub(super) fn until(fields: &mut Fields) -> Result<Option<SystemTime>, Problem> {
    let (now, Some(value)) = (time::now(), fields.take("until")) else { return Ok(None) };
    let end = match (&value, value.as_u64()) {
        (_, Some(millis)) => time::at_millis(millis, now),
        (Value::String(text), _) => time::until(text, now),
        _ => Err(NoEnd::Form),
    };
    let invalid =
        |cause| Problem::invalid(format!("\"until\" is {value:.80}{cause}"), time::ALLOWED);
    end.map(Some).map_err(invalid)
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
        "unread": change.unread,
    });
    let status = if change.not_applied.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
    (status, Json(answer))
}
