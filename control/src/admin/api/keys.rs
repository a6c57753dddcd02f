//! The standing of a key under every policy.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::lookup;
use crate::{
    KeyType,
    admin::{config::Shared, problem::Problem},
};

#[derive(Deserialize)]
pub(in crate::admin) struct OfKey {
    key: String,
}

/// Returns where a key stands under each policy, or why it has no standing there.
pub(in crate::admin) async fn key(
    State(shared): State<Shared>,
    query: Result<Query<OfKey>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Ok(Query(OfKey { key: text })) = query else {
        return Err(Problem::invalid("The request names no key", "the parameter \"key\""));
    };
    // A digest is no key under any policy.
    if let Err(error) = KeyType::Text.parse(&text)
        && error.is_digest()
    {
        return Err(lookup::digest(&error));
    }
    let mut standings = Vec::new();
    for registered in shared.registry.policies() {
        let key = lookup::key(&registered, &text);
        let standing = match key {
            Ok(key) => {
                let standing = lookup::standing(&registered, &shared.limiter, key).await;
                standing
                    .map_err(|error| format!("No data because the store cannot answer: {error}"))
            }
            Err(_) => {
                let allowed = registered.keys();
                Err(format!("No data because the keys of this policy have another form: {allowed}"))
            }
        };
        standings.push(standing.unwrap_or_else(
            |cause| json!({ "policy": registered.policy().name(), "no_data": cause }),
        ));
    }
    Ok(Json(json!({ "key": text, "standings": standings })))
}
