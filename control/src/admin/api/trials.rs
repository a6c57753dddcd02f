//! Limits on trial, compared with the live ones.

use axum::{Json, extract::State};
use plimsoll::policy::TrialCounts;
use serde_json::{Value, json};

use crate::admin::config::Admin;

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
