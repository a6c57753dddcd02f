//! The policies with their rates.

use axum::{Json, extract::State};
use serde_json::{Value, json};

use super::lookup;
use crate::{
    Registered,
    admin::{Activity, config::Admin, rates::SAMPLE},
};

/// Returns all policies.
pub(in crate::admin) async fn policies(State(admin): State<Admin>) -> Json<Value> {
    let policies = admin.registry.policies();
    let overrides = admin.overrides.list();
    let policy = |registered: &Registered| {
        let mut value = policy(registered, &admin.activity);
        value["override_version"] = lookup::override_version(&overrides, registered, None).into();
        value
    };
    Json(policies.iter().map(policy).collect())
}

fn policy(registered: &Registered, activity: &Activity) -> Value {
    let policy = registered.policy();
    let (configured, source) = registered.configured();
    let mut value = json!({
        "name": policy.name(),
        "quota": policy.quota().to_string(),
        "unit": policy.unit(),
        "source": registered.origin().to_string(),
        "configured": { "quota": configured.to_string(), "source": source.to_string() },
        "overridden": registered.overridden().is_some(),
        "enabled": registered.is_enabled(),
        "version": policy.version(),
        "keys": registered.keys().to_string(),
        "key_overrides": policy.key_quotas().len(),
    });
    match activity.samples(policy.name()) {
        Some(samples) => {
            value["rates"] = json!({
                "seconds_per_sample": SAMPLE.as_secs(),
                "allowed": samples.allowed,
                "denied": samples.denied,
                "would_deny": samples.would_deny,
            });
        }
        None => {
            let cause = "No data because this process has decided no request under the policy";
            value["no_data"] = cause.into();
        }
    }
    value
}
