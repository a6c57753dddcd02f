//! The command `check`: where a key stands in the store of a limits file.

use std::process::ExitCode;

use plimsoll::{Charge, Key};
use plimsoll_control::Registered;
use serde_json::{Value, json};

use crate::{
    args::{KeyOfPolicies, Limits},
    client::Failure,
    commands::print,
    limiter::{SharedLimiter, charge, runtime},
    output, run,
};

/// Looks where a key stands under each policy that has such keys, and spends nothing.
pub(crate) fn run(
    key: &KeyOfPolicies,
    cost: u64,
    limits: &Limits,
    is_json: bool,
) -> Result<ExitCode, Failure> {
    runtime()?.block_on(async {
        let shared = SharedLimiter::connect(limits).await?;
        let policies = match &key.policy {
            Some(policy) => vec![shared.policy(policy)?],
            None => shared.policies(),
        };
        let mut rows = Vec::new();
        for registered in &policies {
            match registered.keys().parse(&key.key) {
                Ok(parsed) => rows.push(row(&shared, registered, parsed, cost).await?),
                Err(error) if key.policy.is_some() => return Err(Failure::of(error)),
                Err(_) => {}
            }
        }
        if rows.is_empty() {
            return Err(Failure::new("no policy of the file has such keys"));
        }
        let is_admitted = rows.iter().all(|row| row["admitted"] == true);
        let rows = rows.into();
        print(&if is_json { output::json(&rows) } else { output::standings(&rows) })?;
        Ok(if is_admitted { ExitCode::SUCCESS } else { ExitCode::from(run::DENIED) })
    })
}

/// Returns where a key stands under a policy, in the form of the admin API.
async fn row(
    shared: &SharedLimiter,
    registered: &Registered,
    key: Key,
    cost: u64,
) -> Result<Value, Failure> {
    let policy = registered.policy();
    if !registered.is_enabled() {
        let off = "the policy is switched off, and admits each request";
        return Ok(json!({ "policy": policy.name(), "admitted": true, "no_data": off }));
    }
    let charge: Charge<'_> = charge(registered, key, cost);
    let decision = shared.limiter.peek(charge).await.map_err(Failure::of)?;
    let outcome = decision.outcomes().next().ok_or_else(|| Failure::new("the check is empty"))?;
    let standing = outcome.standing();
    let quota = outcome.charge().quota();
    Ok(json!({
        "policy": policy.name(),
        "quota": quota.to_string(),
        "is_own_quota": *quota != policy.quota(),
        "limit": standing.limit,
        "remaining": standing.remaining,
        "reset_after": standing.reset_after.as_secs_f64(),
        "retry_after": standing.retry_after.map(|it| it.as_secs_f64()),
        "admitted": decision.is_allowed(),
        "source": decision.source().name(),
    }))
}
