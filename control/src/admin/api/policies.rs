//! The policies, and those on trial.

use axum::{Json, extract::State};
use plimsoll::policy::TrialCounts;
use serde_json::{Value, json};

use super::lookup;
use crate::{Override, Registered, admin::config::Admin};

/// Returns all policies.
pub(in crate::admin) async fn policies(State(admin): State<Admin>) -> Json<Value> {
    let overrides = admin.overrides.list();
    let policies = admin.registry.policies();
    Json(policies.iter().map(|registered| policy(registered, &overrides)).collect())
}

fn policy(registered: &Registered, overrides: &[Override]) -> Value {
    let policy = registered.policy();
    let (configured, source) = registered.configured();
    json!({
        "name": policy.name(),
        "quota": policy.quota().to_string(),
        "unit": policy.unit(),
        "source": registered.origin().to_string(),
        "configured": { "quota": configured.to_string(), "source": source.to_string() },
        "overridden": registered.overridden().is_some(),
        "override_version": lookup::override_version(overrides, registered, None),
        "enabled": registered.is_enabled(),
        "version": policy.version(),
        "keys": registered.keys().to_string(),
        "key_overrides": policy.key_quotas().len(),
    })
}

/// Returns the policies on trial, with the numbers of requests by both verdicts.
pub(in crate::admin) async fn trials(State(admin): State<Admin>) -> Json<Value> {
    let policies = admin.registry.policies();
    let trials = policies.iter().filter_map(|registered| {
        let counts = registered.policy().trial_counts();
        (counts != TrialCounts::default()).then(|| {
            json!({
                "policy": registered.policy().name(),
                "quota": registered.policy().quota().to_string(),
                "allowed_by_both": counts.allowed_by_both,
                "allowed_by_live_only": counts.allowed_by_live_only,
                "allowed_by_trial_only": counts.allowed_by_trial_only,
                "denied_by_both": counts.denied_by_both,
            })
        })
    });
    Json(trials.collect())
}
