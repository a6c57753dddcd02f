//! The operator of a request, and answers to requests for something that does not exist.

use axum::{Json, extract::State};
use http::{Method, StatusCode, Uri, request::Parts};
use serde_json::{Value, json};

use crate::{admin::config::Admin, web::Problem};

/// Returns the operator who asks, or `null`. So the page knows if it has to ask for a token.
pub(in crate::admin) async fn session(State(admin): State<Admin>, parts: Parts) -> Json<Value> {
    let operator = admin.access.operator(&parts);
    Json(json!({
        "operator": operator.map(|it| json!({ "name": it.name(), "role": it.role().name() })),
        "tokens": admin.access.has_tokens(),
    }))
}

pub(in crate::admin) async fn not_found(uri: Uri) -> Problem {
    let detail = format!("There is no {}", uri.path());
    let problem = Problem::new(StatusCode::NOT_FOUND, "Not found", detail);
    problem.allowed(
        "policies, keys, overrides, reset, block, unblock, offenders, audit, status, fleet, hits, trials",
    )
}

pub(in crate::admin) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not know the method {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", detail)
        .allowed("GET to see; PUT and DELETE for overrides; POST for reset, block and unblock")
}
