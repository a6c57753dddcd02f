//! The keys that are denied most or spend most, and the audit log.

use std::cmp::Reverse;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::{Deserialize, Serialize};

use super::lookup;
use crate::{
    AuditEntry, Offender, OffenderOrder,
    admin::{config::Admin, problem::of_read},
    web::Problem,
};

/// The entries that a request may ask for.
const MAX_ENTRIES: usize = 1_000;

#[derive(Deserialize)]
pub(in crate::admin) struct OfPolicy {
    policy: Option<String>,
    count: Option<usize>,
    #[serde(default)]
    by: OffenderOrder,
}

#[derive(Deserialize)]
pub(in crate::admin) struct Newest {
    count: Option<usize>,
}

/// A key that is limited, and the policy under which it is.
#[derive(Serialize)]
pub(in crate::admin) struct Row {
    policy: String,
    #[serde(flatten)]
    offender: Offender,
}

/// Returns the keys that are denied most, or those that spend most, under one policy or under all.
pub(in crate::admin) async fn offenders(
    State(admin): State<Admin>,
    query: Result<Query<OfPolicy>, QueryRejection>,
) -> Result<Json<Vec<Row>>, Problem> {
    let Ok(Query(OfPolicy { policy, count, by })) = query else {
        let allowed = "optionally \"policy\", \"count\", and \"by\", which is denied or spent";
        return Err(Problem::invalid("A parameter is wrong", allowed));
    };
    let policies = match policy {
        Some(policy) => vec![lookup::policy(&admin.registry, &policy)?],
        None => admin.registry.policies(),
    };
    let count = count.unwrap_or(20).min(MAX_ENTRIES);
    let mut rows = Vec::new();
    for registered in policies {
        let policy = registered.policy().name();
        let found = admin.offenders.top(policy, count, by);
        rows.extend(found.into_iter().map(|offender| Row { policy: policy.into(), offender }));
    }
    rows.sort_by_key(|Row { offender, .. }| Reverse(by.of(offender)));
    rows.truncate(count);
    Ok(Json(rows))
}

/// Returns the newest entries of the audit log, the newest first.
pub(in crate::admin) async fn audit(
    State(admin): State<Admin>,
    query: Result<Query<Newest>, QueryRejection>,
) -> Result<Json<Vec<AuditEntry>>, Problem> {
    let Ok(Query(Newest { count })) = query else {
        let allowed = format!("the parameter \"count\" of 0 to {MAX_ENTRIES}");
        return Err(Problem::invalid("The number of entries is not a number", allowed));
    };
    let entries = admin.overrides.audit(count.unwrap_or(50).min(MAX_ENTRIES)).await;
    Ok(Json(entries.map_err(of_read)?))
}
