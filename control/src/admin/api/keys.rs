//! The standing of a key under every policy.

use std::time::Duration;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use super::lookup;
use crate::{
    KeyType,
    admin::{config::Shared, problem::Problem},
};

/// The time for the standings under all policies.
const PATIENCE: Duration = Duration::from_secs(2);

const TOO_SLOW: &str = "No data because the store has not answered within 2 s";

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
    lookup::check_length(&text)?;
    // A digest is no key under any policy.
    if let Err(error) = KeyType::Text.parse(&text)
        && error.is_digest()
    {
        return Err(lookup::digest(&error));
    }
    let overrides = shared.overrides.list();
    let policies = shared.registry.policies();
    let mut standings: Vec<_> = policies.iter().map(|_| Err((TOO_SLOW.to_owned(), true))).collect();
    let mut asked = JoinSet::new();
    for (place, registered) in policies.iter().enumerate() {
        let Ok(key) = lookup::key(registered, &text) else {
            let allowed = registered.keys();
            let cause =
                format!("No data because the keys of this policy have another form: {allowed}");
            standings[place] = Err((cause, false));
            continue;
        };
        let version = lookup::override_version(&overrides, registered, Some(&key));
        let (registered, limiter) = (registered.clone(), shared.limiter.clone());
        asked.spawn(async move {
            let mut standing = lookup::standing(&registered, &limiter, key).await;
            if let Ok(standing) = &mut standing {
                standing["override_version"] = version.into();
            }
            (place, standing)
        });
    }
    let answers = async {
        while let Some(answer) = asked.join_next().await {
            let Ok((place, standing)) = answer else { continue };
            standings[place] = standing.map_err(|error| {
                (format!("No data because the store cannot answer: {error}"), true)
            });
        }
    };
    // The policies without an answer keep the reason.
    let _ = timeout(PATIENCE, answers).await;
    let standings: Value = policies
        .iter()
        .zip(standings)
        .map(|(registered, standing)| {
            standing.unwrap_or_else(|(cause, is_key)| {
                let policy = registered.policy().name();
                json!({ "policy": policy, "no_data": cause, "is_key": is_key })
            })
        })
        .collect();
    Ok(Json(json!({ "key": text, "standings": standings })))
}
