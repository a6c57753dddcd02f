//! Changes of one key: reset, block and unblock.

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use plimsoll::{Charge, Key, error::Effect};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    body::{Change, End},
    lookup,
    overrides::{Changed, changed, whose},
};
use crate::{
    AuditAction, AuditEntry, Override, OverrideError, OverrideKind, Registered,
    admin::{Operator, config::Admin},
    web::Problem,
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
    until: Option<End>,
    version: Option<u64>,
}

/// A change of a key that is valid, with its audit entry.
struct Valid<'a> {
    admin: &'a Admin,
    registered: Registered,
    key: Key,
    entry: AuditEntry,
    /// Names the key.
    whose: String,
}

/// Forgets what a key has spent under a policy, and lifts a block.
pub(in crate::admin) async fn reset(
    State(admin): State<Admin>,
    Extension(operator): Extension<Operator>,
    Change(change): Change<OfKey>,
) -> Result<Json<Value>, Problem> {
    let valid = Valid::new(&admin, change, &operator, AuditAction::Reset)?;
    let before = valid.standing().await?;
    // Otherwise the block would be in the list, and act on none.
    let removed = valid.end_block().await?;
    let found = removed | valid.make(|| admin.limiter.reset(valid.charge())).await?;
    let after = valid.standing().await.unwrap_or(Value::Null);
    let mut message = format!("{}: {}", valid.whose, left(&after));
    if found {
        message += &format!(", before {}", left(&before));
    } else {
        message += "; the key had spent nothing, and was not blocked";
    }
    let audited = valid.record(Some(left(&before)), Some(left(&after)), &mut message).await;
    Ok(Json(json!({
        "message": message, "found": found, "before": before, "after": after, "audited": audited,
    })))
}

fn left(standing: &Value) -> String {
    match standing {
        Value::Null => "reset".to_owned(),
        standing => format!("{} of {} left", standing["remaining"], standing["limit"]),
    }
}

/// Denies all requests of a key under a policy.
pub(in crate::admin) async fn block(
    State(admin): State<Admin>,
    Extension(operator): Extension<Operator>,
    Change(block): Change<Block>,
) -> Result<Changed, Problem> {
    let Block { policy, key, reason, until, version } = block;
    let new = Override {
        key: Some(key.clone()),
        until: until.map(|End(time)| time),
        ..Override::new(&policy, OverrideKind::Block, operator.name(), &reason)
    };
    let change = admin.overrides.set(new, version).await?;
    Ok(changed(&policy, Some(&key), &change))
}

/// Lifts a block.
pub(in crate::admin) async fn unblock(
    State(admin): State<Admin>,
    Extension(operator): Extension<Operator>,
    Change(change): Change<OfKey>,
) -> Result<Json<Value>, Problem> {
    let valid = Valid::new(&admin, change, &operator, AuditAction::Unblock)?;
    let removed = valid.end_block().await?;
    let lifted = valid.make(|| admin.limiter.unblock(valid.charge())).await?;
    if !removed && !lifted {
        let message = format!("{}: it was not blocked", valid.whose);
        return Ok(Json(json!({ "message": message, "found": false })));
    }
    let mut message = format!("{}: not blocked any more", valid.whose);
    // The end of an override has an entry already.
    let audited = removed || valid.record(Some("block".into()), None, &mut message).await;
    Ok(Json(json!({ "message": message, "found": true, "audited": audited })))
}

impl<'a> Valid<'a> {
    /// Checks a change and its audit entry before anything is done.
    fn new(
        admin: &'a Admin,
        OfKey { policy, key, reason }: OfKey,
        operator: &Operator,
        action: AuditAction,
    ) -> Result<Self, Problem> {
        let whose = whose(&policy, Some(&key));
        let entry = AuditEntry::new(action, &policy, operator.name(), &reason);
        let entry = AuditEntry { key: Some(key), ..entry };
        let (registered, key) = admin.overrides.check(&entry)?;
        let key = key.unwrap_or(Key::ANONYMOUS);
        Ok(Self { admin, registered, key, entry, whose })
    }

    fn charge(&self) -> Charge<'_> {
        self.registered.policy().charge(self.key, 1)
    }

    async fn standing(&self) -> Result<Value, plimsoll::Error> {
        lookup::standing(&self.registered, &self.admin.limiter, self.key).await
    }

    /// Ends the override that blocks the key. Returns false if there is none: the program may have blocked it.
    async fn end_block(&self) -> Result<bool, Problem> {
        let policy = self.registered.policy().name();
        let block = self.admin.overrides.list().into_iter().find(|it| {
            let is_block = it.policy == policy && it.kind == OverrideKind::Block;
            let key = it.key.as_deref();
            is_block && key.is_some_and(|text| lookup::is_key(&self.registered, text, &self.key))
        });
        let Some(Override { key, .. }) = block else { return Ok(false) };
        let AuditEntry { by, reason, .. } = &self.entry;
        match self.admin.overrides.remove(policy, key.as_deref(), None, by, reason).await {
            Ok(_) => Ok(true),
            Err(OverrideError::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a change in the store of the limiter, and returns whether it found the key. If the reply is lost, makes
    /// it once more, which is safe: both times the key is forgotten. If that one is lost too, the change may have
    /// been made, so the audit log has an entry of it.
    async fn make<F>(&self, change: impl Fn() -> F) -> Result<bool, Problem>
    where
        F: Future<Output = Result<usize, plimsoll::Error>>,
    {
        let first = match change().await {
            Ok(keys) => return Ok(keys > 0),
            Err(error) => error,
        };
        if first.effect() == Effect::None {
            return Err(first.into());
        }
        // The first call may have found the key.
        let Err(error) = change().await else { return Ok(true) };
        let after = Some("unknown: the store did not answer".into());
        self.record(None, after, &mut String::new()).await;
        let detail = format!("The change may have been made: {error}");
        Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, "The store did not answer", detail))
    }

    /// Adds the entry to the audit log. If it does not answer, the message and the log of the process say so,
    /// because the change was made.
    async fn record(
        &self,
        before: Option<String>,
        after: Option<String>,
        message: &mut String,
    ) -> bool {
        let entry = AuditEntry { before, after, ..self.entry.clone() };
        let Err(error) = self.admin.overrides.record(entry).await else { return true };
        let AuditEntry { action, policy, by, reason, .. } = &self.entry;
        tracing::error!(
            target: "plimsoll", policy, by, reason, "{action:?} is not in the audit log: {error}"
        );
        *message +=
            &format!(". The change was made, but the audit log has no entry of it: {error}");
        false
    }
}
