//! The standing of a key under every policy.

use std::time::Duration;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::lookup;
use crate::{KeyType, OverrideError, admin::config::Admin, overrides, web::Problem};

/// The time for the standings under all policies.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
pub(in crate::admin) struct OfKey {
    key: String,
}

/// Returns where a key stands under each policy, or why it has no standing there.
pub(in crate::admin) async fn key(
    State(admin): State<Admin>,
    query: Result<Query<OfKey>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Ok(Query(OfKey { key: text })) = query else {
        return Err(Problem::invalid("The request names no key", "the parameter \"key\""));
    };
    // A digest is no key under any policy, and neither is a long text.
    if let Err(error) = KeyType::Text.parse(&text)
        && error.is_digest()
    {
        return Err(OverrideError::Key(error).into());
    }
    overrides::check_length(&text)?;
    let listed = admin.overrides.list();
    let policies = admin.registry.policies();
    let end = Instant::now() + PATIENCE;
    let mut standings = Vec::new();
    for registered in &policies {
        let policy = registered.policy().name();
        let Ok(key) = registered.keys().parse(&text) else {
            let allowed = registered.keys();
            let cause = format!("the keys of this policy have another form: {allowed}");
            standings.push(no_data(policy, cause, false));
            continue;
        };
        let standing = lookup::standing(registered, &admin.limiter, key);
        standings.push(match timeout_at(end, standing).await {
            Ok(Ok(mut standing)) => {
                let version = lookup::override_version(&listed, registered, Some(&key));
                standing["override_version"] = version.into();
                standing
            }
            Ok(Err(error)) => no_data(policy, format!("the store cannot answer: {error}"), true),
            Err(_) => no_data(policy, "the store has not answered within 2 s".to_owned(), true),
        });
    }
    Ok(Json(json!({ "key": text, "standings": standings })))
}

fn no_data(policy: &str, cause: String, is_key: bool) -> Value {
    let cause = format!("No data because {cause}");
    json!({ "policy": policy, "no_data": cause, "is_key": is_key })
}
