//! The routes `/json` and `/rlconfig`.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;

use super::{
    envoy::Shared,
    json,
    request::MAX_MESSAGE_BYTES,
    service::{NotDecided, decide},
};

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/json", post(decide_json))
        .route("/rlconfig", get(show_config))
        .layer(DefaultBodyLimit::max(MAX_MESSAGE_BYTES))
        .with_state(shared)
}

async fn decide_json(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let request = match json::request(&body) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    match decide(&shared, &request).await {
        Ok(response) => {
            let status = match response.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::OK,
            };
            (status, Json(json::response(&response))).into_response()
        }
        Err(reason) => {
            let status = match &reason {
                NotDecided::Bad(_) => StatusCode::BAD_REQUEST,
                NotDecided::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, format!("{}\n", tonic::Status::from(reason).message())).into_response()
        }
    }
}

async fn show_config(State(shared): State<Arc<Shared>>) -> String {
    shared.config.load().dump()
}
