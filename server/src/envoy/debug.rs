//! The routes `/json` and `/rlconfig`.

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use serde_json::json;

use super::{envoy::Envoy, json, request::MAX_MESSAGE_BYTES, service::NotDecided};

impl Envoy {
    /// Returns the routes `/json`, which decides a request in JSON, and `/rlconfig`, which shows the limits
    /// in force.
    pub fn debug_router(&self) -> Router {
        Router::new()
            .route("/json", post(decide_json))
            .route("/rlconfig", get(show_config))
            .layer(DefaultBodyLimit::max(MAX_MESSAGE_BYTES))
            .with_state(self.clone())
    }
}

async fn decide_json(State(envoy): State<Envoy>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) => return problem(error.status(), &error.body_text()),
    };
    let request = match json::request(&body) {
        Ok(request) => request,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error),
    };
    match envoy.decide(&request).await {
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
            problem(status, tonic::Status::from(reason).message())
        }
    }
}

/// Returns an error as a problem document (RFC 9457).
fn problem(status: StatusCode, detail: &str) -> Response {
    let title = match status {
        StatusCode::BAD_REQUEST => "Not a request of Envoy",
        StatusCode::PAYLOAD_TOO_LARGE => "Too long",
        _ => "The store cannot answer",
    };
    let document = json!({ "title": title, "status": status.as_u16(), "detail": detail });
    let content_type = [(CONTENT_TYPE, "application/problem+json"), (CACHE_CONTROL, "no-store")];
    (status, content_type, document.to_string()).into_response()
}

async fn show_config(State(envoy): State<Envoy>) -> String {
    envoy.config().dump()
}
