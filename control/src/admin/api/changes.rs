//! Changes of one key: reset, block and unblock.

use axum::{Extension, Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    body::{self, Change},
    lookup,
};
use crate::admin::{Operator, problem::Problem, router::Shared};

/// A change of a key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct OfKey {
    policy: String,
    key: String,
    reason: String,
}

/// Forgets what a key has spent under a policy.
pub(in crate::admin) async fn reset(
    State(shared): State<Shared>,
    Extension(operator): Extension<Operator>,
    Change(change): Change<OfKey>,
) -> Result<Json<Value>, Problem> {
    let registered = lookup::policy(&shared.registry, &change.policy)?;
    let key = lookup::key(&registered, &change.key)?;
    let reason = body::reason(&change.reason)?;
    let before = lookup::standing(&registered, &shared.limiter, key).await?;
    let found = shared.limiter.reset(registered.policy().charge(key, 1)).await?;
    let after = lookup::standing(&registered, &shared.limiter, key).await?;
    let _ = (operator, reason);
    Ok(Json(
        json!({ "policy": change.policy, "key": change.key, "found": found > 0, "before": before, "after": after }),
    ))
}
