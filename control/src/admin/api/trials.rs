//! Limits on trial, compared with the live ones.

use axum::{Json, extract::State};
use plimsoll::TrialCounts;
use serde_json::{Value, json};

use crate::admin::config::Shared;

/// Returns the policies on trial, with the numbers of requests by both verdicts.
pub(in crate::admin) async fn trials(State(shared): State<Shared>) -> Json<Value> {
    let policies = shared.registry.policies();
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
