//! The keys that are denied most, and the audit log.

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

/// Returns the keys that are denied most under a policy, and what they spend.
pub(in crate::admin) async fn offenders(
    State(shared): State<Shared>,
    query: Result<Query<OfPolicy>, QueryRejection>,
) -> Result<Json<Vec<Offender>>, Problem> {
    let Ok(Query(OfPolicy { policy, count, scope })) = query else {
        let allowed = "the parameter \"policy\", and optionally \"count\" and \"scope\", which is fleet or \
                       process";
        return Err(Problem::invalid("The request names no policy, or a value is wrong", allowed));
    };
    lookup::policy(&shared.registry, &policy)?;
    let count = count.unwrap_or(20).min(MAX_ENTRIES);
    let offenders = shared.activity.offenders();
    Ok(Json(match scope {
        Scope::Fleet => offenders.top_of_fleet(&policy, count).await.map_err(Problem::of_read)?,
        Scope::Process => offenders.top(&policy, count),
    }))
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
