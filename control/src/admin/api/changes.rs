//! Changes of one key: reset, block and unblock.

use axum::{Extension, Json, extract::State};
use plimsoll::Key;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    body::{self, Change},
    lookup,
    overrides::{Until, answer, until, whose},
};
use crate::{
    AuditAction, NewAuditEntry, NewOverride, OverrideError, OverrideKind, Registered,
    admin::{Operator, config::Shared, problem::Problem},
    overrides::digest,
};

/// A change of a key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct OfKey {
    policy: String,
    key: String,
    reason: String,
}

/// A block of a key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct Block {
    policy: String,
    key: String,
    reason: String,
    until: Option<Until>,
}

/// Forgets what a key has spent under a policy, and lifts a block.
pub(in crate::admin) async fn reset(
    State(shared): State<Shared>,
    Extension(operator): Extension<Operator>,
    Change(change): Change<OfKey>,
) -> Result<Json<Value>, Problem> {
    let registered = lookup::policy(&shared.registry, &change.policy)?;
    let key = lookup::key(&registered, &change.key)?;
    let reason = body::reason(&change.reason)?;
    let before = lookup::standing(&registered, &shared.limiter, key).await?;
    // Otherwise the block would be in the list, and act on none.
    let removed = end_block(&shared, &registered, key, &operator, reason).await?;
    let found = removed | (shared.limiter.reset(registered.policy().charge(key, 1)).await? > 0);
    let after = lookup::standing(&registered, &shared.limiter, key).await?;
    let left =
        |standing: &Value| format!("{} of {} left", standing["remaining"], standing["limit"]);
    let entry = NewAuditEntry {
        action: AuditAction::Reset,
        policy: change.policy.clone(),
        key: Some(change.key.clone()),
        before: Some(left(&before)),
        after: Some(left(&after)),
        by: operator.name().into(),
        reason: reason.into(),
    };
    let mut message = format!("{}: {}", whose(&change.policy, Some(&change.key)), left(&after));
    message += if found { ", before " } else { "; the key had spent nothing, and was not blocked" };
    if found {
        message += &left(&before);
    }
    message += &recorded(shared.overrides.record(entry).await);
    Ok(Json(json!({ "message": message, "found": found, "before": before, "after": after })))
}

/// Denies all requests of a key under a policy.
pub(in crate::admin) async fn block(
    State(shared): State<Shared>,
    Extension(operator): Extension<Operator>,
    Change(block): Change<Block>,
) -> Result<Json<Value>, Problem> {
    let new = NewOverride {
        policy: block.policy.clone(),
        key: Some(block.key.clone()),
        kind: OverrideKind::Block,
        until: until(block.until)?,
        by: operator.name().into(),
        reason: body::reason(&block.reason)?.into(),
        version: None,
    };
    let change = shared.overrides.set(new).await?;
    let message = format!("{}: blocked", whose(&block.policy, Some(&block.key)));
    Ok(Json(answer(message, &change)))
}

/// Lifts a block.
pub(in crate::admin) async fn unblock(
    State(shared): State<Shared>,
    Extension(operator): Extension<Operator>,
    Change(change): Change<OfKey>,
) -> Result<Json<Value>, Problem> {
    let registered = lookup::policy(&shared.registry, &change.policy)?;
    let key = lookup::key(&registered, &change.key)?;
    let reason = body::reason(&change.reason)?;
    let removed = end_block(&shared, &registered, key, &operator, reason).await?;
    let lifted = shared.limiter.unblock(registered.policy().charge(key, 1)).await? > 0;
    let mut message = whose(&change.policy, Some(&change.key));
    if !removed && !lifted {
        message += ": it was not blocked";
        return Ok(Json(json!({ "message": message, "found": false })));
    }
    message += ": not blocked any more";
    if !removed {
        let entry = NewAuditEntry {
            action: AuditAction::Unblock,
            policy: change.policy.clone(),
            key: Some(change.key.clone()),
            before: Some("block".into()),
            after: None,
            by: operator.name().into(),
            reason: reason.into(),
        };
        message += &recorded(shared.overrides.record(entry).await);
    }
    Ok(Json(json!({ "message": message, "found": true })))
}

/// Ends the override that blocks a key. Returns false if there is none: the program may have blocked it.
async fn end_block(
    shared: &Shared,
    registered: &Registered,
    key: Key,
    operator: &Operator,
    reason: &str,
) -> Result<bool, Problem> {
    let policy = registered.policy().name();
    let is_key = |text: &str| {
        text == digest(&key) || registered.keys().parse(text).is_ok_and(|it| it == key)
    };
    let block = shared.overrides.list().into_iter().find(|it| {
        it.policy == policy
            && it.kind == OverrideKind::Block
            && it.key.as_deref().is_some_and(is_key)
    });
    let Some(block) = block else { return Ok(false) };
    let key = block.key.as_deref();
    match shared.overrides.remove(policy, key, operator.name(), reason).await {
        Ok(_) => Ok(true),
        Err(OverrideError::NotFound) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Says that the audit log has no entry of a change that was made.
fn recorded(result: Result<(), OverrideError>) -> String {
    result.err().map_or_else(String::new, |error| {
        format!(". The change was made, but the audit log has no entry of it: {error}")
    })
}
