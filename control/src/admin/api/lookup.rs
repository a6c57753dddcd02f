//! The policy and the key that a request names.

use std::time::Duration;

use http::StatusCode;
use plimsoll::{Algorithm, Decision, Key, Limiter, Outcome};
use serde_json::{Value, json};

use crate::{
    KeyTypeError, Override, Registered, Registry,
    admin::problem::{Problem, capitalized},
    overrides,
};

/// The longest key that an operator may write, in bytes.
const MAX_KEY_BYTES: usize = 4_096;

/// Returns the policy of a name.
pub(super) fn policy(registry: &Registry, name: &str) -> Result<Registered, Problem> {
    registry.get(name).ok_or_else(|| {
        let names: Vec<_> =
            registry.policies().iter().map(|it| it.policy().name().to_owned()).collect();
        let detail = format!("There is no policy {name:?}");
        Problem::new(StatusCode::NOT_FOUND, "No such policy", detail).allowed(match &names[..] {
            [] => "nothing: no policy is registered".to_owned(),
            names => names.join(", "),
        })
    })
}

/// Checks that a text is not too long for a key.
pub(super) fn check_length(text: &str) -> Result<(), Problem> {
    if text.len() <= MAX_KEY_BYTES {
        return Ok(());
    }
    let detail = format!("The key has {} bytes", text.len());
    Err(Problem::invalid(detail, format!("at most {MAX_KEY_BYTES} bytes")))
}

/// Returns the key under a policy that a text stands for.
pub(super) fn key(registered: &Registered, text: &str) -> Result<Key, Problem> {
    check_length(text)?;
    registered.keys().parse(text).map_err(|error| match error.is_digest() {
        true => digest(&error),
        false => Problem::invalid(
            format!("{error}, under the policy {:?}", registered.policy().name()),
            registered.keys().to_string(),
        ),
    })
}

/// Returns the problem of a digest, which is shown in the place of a key.
pub(super) fn digest(error: &KeyTypeError) -> Problem {
    Problem::invalid(capitalized(&error.to_string()), "a key, which has no digest")
}

/// Returns the standing of a key under a policy.
pub(super) async fn standing(
    registered: &Registered,
    limiter: &Limiter,
    key: Key,
) -> Result<Value, plimsoll::Error> {
    let decision = limiter.peek(registered.policy().charge(key, 1)).await?;
    let Some(outcome) = decision.outcomes().get(0) else {
        return Ok(Value::Null);
    };
    let standing = outcome.standing();
    let counted_by = match standing.reset_after() {
        Duration::ZERO => other_algorithm(registered, limiter, key).await?,
        _ => None,
    };
    Ok(json!({
        "policy": registered.policy().name(),
        "quota": outcome.quota().to_string(),
        "is_own_quota": *outcome.quota() != registered.policy().quota(),
        "limit": standing.limit(),
        "remaining": standing.remaining(),
        "reset_after": seconds(standing.reset_after()),
        "retry_after": standing.retry_after().map(seconds),
        "admitted": matches!(decision, Decision::Allowed(_)),
        "source": decision.source().name(),
        "counted_by": counted_by,
    }))
}

/// Returns the algorithm by which the key has spent units, if it is not that of the policy: this process may
/// have another configuration than the service.
async fn other_algorithm(
    registered: &Registered,
    limiter: &Limiter,
    key: Key,
) -> Result<Option<&'static str>, plimsoll::Error> {
    let quota = registered.policy().quota();
    let burst = quota.limit();
    let buckets = Algorithm::SlidingBuckets(10);
    let others =
        [Algorithm::SlidingLog, buckets, Algorithm::SlidingCounter, Algorithm::FixedWindow];
    for algorithm in others.into_iter().chain([Algorithm::TokenBucket { burst }]) {
        let Ok(other) = quota.with_algorithm(algorithm) else { continue };
        if algorithm.name() == quota.algorithm().name() {
            continue;
        }
        let charge = registered.policy().charge(key, 0).with_quota(other);
        let decision = limiter.peek(charge).await?;
        let is_used = |outcome: Outcome<'_>| !outcome.standing().reset_after().is_zero();
        if decision.outcomes().get(0).is_some_and(is_used) {
            return Ok(Some(algorithm.name()));
        }
    }
    Ok(None)
}

/// Returns the version of the override of a policy, or of a key under it, or 0 if there is none.
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

/// Returns whether a key is the one that a list of overrides shows.
pub(super) fn is_key(registered: &Registered, shown: &str, key: &Key) -> bool {
    shown == overrides::digest(key) || registered.keys().parse(shown).is_ok_and(|it| it == *key)
}

pub(super) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}
