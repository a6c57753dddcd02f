//! Resets.

use axum::{extract::State, response::Response};
use http::HeaderMap;
use plimsoll::policy::Charges;
use serde::Deserialize;
use serde_json::json;

use super::{Api, answer, body::Body, caller::Caller, policies, problem::Problem};

/// The body of a reset.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetBody {
    keys: Vec<KeyBody>,
}

/// A key under a policy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyBody {
    policy: String,
    key: String,
}

/// Forgets the spent units of keys, and lifts their blocks.
pub(super) async fn reset(
    State(api): State<Api>,
    Caller(client): Caller,
    Body(body): Body<ResetBody>,
) -> Result<Response, Problem> {
    let count = body.keys.len();
    if !(1..=Charges::MAX).contains(&count) {
        let detail = format!("The request has {count} keys");
        return Err(Problem::invalid(detail, format!("1 to {} keys", Charges::MAX)));
    }
    let registry = &api.parts().registry;
    let found = body.keys.iter().map(|it| policies::find(registry, &client, &it.policy, &it.key));
    let found: Vec<_> = found.collect::<Result<_, _>>()?;
    let charges: Charges<'_> =
        found.iter().map(|(registered, key)| registered.policy().charge(*key, 1)).collect();
    let keys = api.parts().limiter.reset(charges).await?;
    Ok(answer::json(&json!({ "keys": keys }), HeaderMap::new()))
}
