//! The keys that are denied most or spend most, and the audit log.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::Deserialize;

use super::lookup;
use crate::{
    AuditEntry, Offender,
    admin::{config::Shared, problem::Problem},
};

/// The entries that a request may ask for.
const MAX_ENTRIES: usize = 1_000;

#[derive(Deserialize)]
pub(in crate::admin) struct OfPolicy {
    policy: String,
    count: Option<usize>,
    #[serde(default)]
    scope: Scope,
    #[serde(default)]
    by: Order,
}

/// The order of the keys.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Denied,
    Spent,
}

/// The processes whose keys are counted.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    /// All that share their counts.
    #[default]
    Fleet,
    Process,
}

#[derive(Deserialize)]
pub(in crate::admin) struct Newest {
    count: Option<usize>,
}

/// Returns the keys that are denied most under a policy, or those that spend most.
pub(in crate::admin) async fn offenders(
    State(shared): State<Shared>,
    query: Result<Query<OfPolicy>, QueryRejection>,
) -> Result<Json<Vec<Offender>>, Problem> {
    let Ok(Query(OfPolicy { policy, count, scope, by })) = query else {
        let allowed = "the parameter \"policy\", and optionally \"count\", \"scope\", which is fleet or \
                       process, and \"by\", which is denied or spent";
        return Err(Problem::invalid("The request names no policy, or a value is wrong", allowed));
    };
    lookup::policy(&shared.registry, &policy)?;
    let count = count.unwrap_or(20).min(MAX_ENTRIES);
    let offenders = shared.activity.offenders();
    let of_fleet = match (scope, by) {
        (Scope::Process, Order::Denied) => return Ok(Json(offenders.top(&policy, count))),
        (Scope::Process, Order::Spent) => return Ok(Json(offenders.top_spenders(&policy, count))),
        (Scope::Fleet, Order::Denied) => offenders.top_of_fleet(&policy, count).await,
        (Scope::Fleet, Order::Spent) => offenders.top_spenders_of_fleet(&policy, count).await,
    };
    of_fleet.map(Json).map_err(Problem::of_read)
}

/// Returns the newest entries of the audit log, the newest first.
pub(in crate::admin) async fn audit(
    State(shared): State<Shared>,
    query: Result<Query<Newest>, QueryRejection>,
) -> Result<Json<Vec<AuditEntry>>, Problem> {
    let Ok(Query(Newest { count })) = query else {
        let allowed = format!("the parameter \"count\" of 0 to {MAX_ENTRIES}");
        return Err(Problem::invalid("The number of entries is not a number", allowed));
    };
    let entries = shared.overrides.audit(count.unwrap_or(50).min(MAX_ENTRIES)).await;
    Ok(Json(entries.map_err(Problem::of_read)?))
}
