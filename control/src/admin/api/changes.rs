//! Changes of one key: reset, block and unblock.

use std::time::SystemTime;

use axum::{Extension, Json, extract::State};
use plimsoll::{Effect, Key};
use serde_json::{Value, json};

use super::{
    body::{self, Change},
    fields::{Fields, FromFields},
    lookup,
    message::whose,
    overrides::{Changed, changed, until},
};
use crate::{
    AuditAction, NewAuditEntry, NewOverride, OverrideError, OverrideKind, Registered,
    admin::{Operator, config::Shared, problem::Problem},
};

/// A change of a key.
pub(in crate::admin) struct OfKey {
    policy: String,
    key: String,
    reason: String,
}

/// A block of a key.
pub(in crate::admin) struct Block {
    policy: String,
    key: String,
    reason: String,
    until: Option<SystemTime>,
    version: Option<u64>,
}

impl FromFields for OfKey {
    const NAMES: &'static [&'static str] = &["policy", "key", "reason"];

    fn from_fields(fields: &mut Fields) -> Result<Self, Problem> {
        Ok(Self {
            policy: fields.text("policy")?,
            key: fields.key()?,
            reason: fields.text("reason")?,
        })
    }
}

impl FromFields for Block {
    const NAMES: &'static [&'static str] = &["policy", "key", "reason", "until", "version"];

    fn from_fields(fields: &mut Fields) -> Result<Self, Problem> {
        Ok(Self {
            policy: fields.text("policy")?,
            key: fields.key()?,
            reason: fields.text("reason")?,
            until: until(fields)?,
            version: fields.version()?,
        })
    }
}

/// Forgets what a key has spent under a policy, and lifts a block.
pub(in crate::admin) async fn reset(
    State(shared): State<Shared>,
    Extension(operator): Extension<Operator>,
    Change(change): Change<OfKey>,
) -> Result<Json<Value>, Problem> {
    let (registered, key, entry) = validate(&shared, &change, &operator, AuditAction::Reset)?;
    let before = lookup::standing(&registered, &shared.limiter, key).await?;
    // Otherwise the block would be in the list, and act on none.
    let removed = end_block(&shared, &registered, key, &entry).await?;
    let reset = || shared.limiter.reset(registered.policy().charge(key, 1));
    let found = removed | made(&shared, &entry, reset).await?;
    let after = lookup::standing(&registered, &shared.limiter, key).await;
    let after = after.unwrap_or(Value::Null);
    let left = |standing: &Value| match standing {
        Value::Null => "reset".to_owned(),
        standing => format!("{} of {} left", standing["remaining"], standing["limit"]),
    };
    let entry = NewAuditEntry { before: Some(left(&before)), after: Some(left(&after)), ..entry };
    let mut message = format!("{}: {}", whose(&change.policy, Some(&change.key)), left(&after));
    message += if found { ", before " } else { "; the key had spent nothing, and was not blocked" };
    if found {
        message += &left(&before);
    }
    let audited = record(&shared, entry, &mut message).await;
    Ok(Json(json!({
        "message": message, "found": found, "before": before, "after": after, "audited": audited,
    })))
}

/// Denies all requests of a key under a policy.
pub(in crate::admin) async fn block(
    State(shared): State<Shared>,
    Extension(operator): Extension<Operator>,
    Change(block): Change<Block>,
) -> Result<Changed, Problem> {
    let new = NewOverride {
        policy: block.policy.clone(),
        key: Some(block.key.clone()),
        kind: OverrideKind::Block,
        until: block.until,
        by: operator.name().into(),
        reason: body::reason(&block.reason)?.into(),
        version: block.version,
    };
    let change = shared.overrides.set(new).await?;
    Ok(changed(&block.policy, Some(&block.key), &change))
}

/// Lifts a block.
pub(in crate::admin) async fn unblock(
    State(shared): State<Shared>,
    Extension(operator): Extension<Operator>,
    Change(change): Change<OfKey>,
) -> Result<Json<Value>, Problem> {
    let (registered, key, entry) = validate(&shared, &change, &operator, AuditAction::Unblock)?;
    let removed = end_block(&shared, &registered, key, &entry).await?;
    let lift = || shared.limiter.unblock(registered.policy().charge(key, 1));
    let lifted = made(&shared, &entry, lift).await?;
    let mut message = whose(&change.policy, Some(&change.key));
    if !removed && !lifted {
        message += ": it was not blocked";
        return Ok(Json(json!({ "message": message, "found": false })));
    }
    message += ": not blocked any more";
    let mut audited = true;
    if !removed {
        let entry = NewAuditEntry { before: Some("block".into()), ..entry };
        audited = record(&shared, entry, &mut message).await;
    }
    Ok(Json(json!({ "message": message, "found": true, "audited": audited })))
}

/// Checks a change and its audit entry before anything is done. Returns the policy, the key and the entry.
fn validate(
    shared: &Shared,
    change: &OfKey,
    operator: &Operator,
    action: AuditAction,
) -> Result<(Registered, Key, NewAuditEntry), Problem> {
    let registered = lookup::policy(&shared.registry, &change.policy)?;
    let key = lookup::key(&registered, &change.key)?;
    let entry = NewAuditEntry {
        action,
        policy: change.policy.clone(),
        key: Some(change.key.clone()),
        before: None,
        after: None,
        by: operator.name().into(),
        reason: body::reason(&change.reason)?.into(),
    };
    shared.overrides.check(&entry)?;
    Ok((registered, key, entry))
}

/// Ends the override that blocks a key. Returns false if there is none: the program may have blocked it.
async fn end_block(
    shared: &Shared,
    registered: &Registered,
    key: Key,
    entry: &NewAuditEntry,
) -> Result<bool, Problem> {
    let policy = registered.policy().name();
    let is_key = |text: &str| lookup::is_key(registered, text, &key);
    let block = shared.overrides.list().into_iter().find(|it| {
        it.policy == policy
            && it.kind == OverrideKind::Block
            && it.key.as_deref().is_some_and(is_key)
    });
    let Some(block) = block else { return Ok(false) };
    let key = block.key.as_deref();
    match shared.overrides.remove(policy, key, &entry.by, &entry.reason).await {
        Ok(_) => Ok(true),
        Err(OverrideError::NotFound) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes a change in the store of the limiter, and returns whether it found the key. If the reply is lost, makes it
/// once more, which is safe: both times the key is forgotten. If that one is lost too, the change may have been
/// made, so the audit log has an entry of it.
async fn made<F>(
    shared: &Shared,
    entry: &NewAuditEntry,
    change: impl Fn() -> F,
) -> Result<bool, Problem>
where
    F: Future<Output = Result<usize, plimsoll::Error>>,
{
    let mut changed = change().await;
    let is_lost = changed.as_ref().is_err_and(|error| error.effect() != Effect::None);
    if is_lost {
        changed = change().await;
    }
    let error = match changed {
        // The first call may have found the key.
        Ok(keys) => return Ok(is_lost || keys > 0),
        Err(error) if !is_lost => return Err(error.into()),
        Err(error) => error,
    };
    let after = Some("unknown: the store did not answer".into());
    record(shared, NewAuditEntry { after, ..entry.clone() }, &mut String::new()).await;
    Err(Problem::late(error))
}

/// Adds an entry to the audit log. If it does not answer, the message and the log of the process say so,
/// because the change was made.
async fn record(shared: &Shared, entry: NewAuditEntry, message: &mut String) -> bool {
    let NewAuditEntry { action, policy, by, reason, .. } = entry.clone();
    let Err(error) = shared.overrides.record(entry).await else { return true };
    tracing::error!(
        target: "plimsoll", policy, by, reason, "{action} is not in the audit log: {error}"
    );
    *message += &format!(". The change was made, but the audit log has no entry of it: {error}");
    false
}
