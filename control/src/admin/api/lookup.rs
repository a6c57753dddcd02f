//! The policy and the key that a request names.

use std::time::Duration;

use plimsoll::{Decision, Key, Limiter};
use serde_json::{Value, json};

use crate::{Override, Registered, Registry, overrides, web::Problem};

/// Returns the policy of a name.
pub(super) fn policy(registry: &Registry, name: &str) -> Result<Registered, Problem> {
    Ok(overrides::find(registry, name, None)?.0)
}

/// Returns the standing of a key under a policy.
pub(super) async fn standing(
    registered: &Registered,
    limiter: &Limiter,
    key: Key,
) -> Result<Value, plimsoll::Error> {
    let decision = limiter.peek(registered.policy().charge(key, 1)).await?;
    let Some(outcome) = decision.outcomes().next() else {
        return Ok(Value::Null);
    };
    let standing = outcome.standing();
    Ok(json!({
        "policy": registered.policy().name(),
        "quota": outcome.charge().quota().to_string(),
        "is_own_quota": *outcome.charge().quota() != registered.policy().quota(),
        "limit": standing.limit,
        "remaining": standing.remaining,
        "reset_after": seconds(standing.reset_after),
        "retry_after": standing.retry_after.map(seconds),
        "admitted": matches!(decision, Decision::Allowed(_)),
        "source": decision.source().name(),
    }))
}

/// Returns the version of the [override](Override) of a policy, or of a key under it, or 0 if there is none.
pub(super) fn override_version(
    overrides: &[Override],
    registered: &Registered,
    key: Option<&Key>,
) -> u64 {
    let of_policy = overrides.iter().filter(|it| it.policy == registered.policy().name());
    let found = of_policy.into_iter().find(|it| match (&it.key, key) {
        (Some(text), Some(key)) => is_key(registered, text, key),
        (None, None) => true,
        _ => false,
    });
    found.map_or(0, |it| it.version)
}

/// Returns whether a list of [overrides](Override) shows this key.
pub(super) fn is_key(registered: &Registered, shown: &str, key: &Key) -> bool {
    shown == overrides::digest(key) || registered.keys().parse(shown).is_ok_and(|it| it == *key)
}

pub(super) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}
