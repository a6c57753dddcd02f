//! The route `/json`.

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;

use super::{
    envoy::Envoy,
    json,
    request::{BadRequest, MAX_MESSAGE_BYTES},
    service::NotDecided,
};
use crate::http::Problem;

impl Envoy {
    /// Returns the route `/json`, which decides a request in JSON.
    pub fn debug_router(&self) -> Router {
        Router::new()
            .route("/json", post(decide_json))
            .layer(DefaultBodyLimit::max(MAX_MESSAGE_BYTES))
            .with_state(self.clone())
    }
}

async fn decide_json(State(envoy): State<Envoy>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) => {
            return Problem::new(error.status(), "Not read", error.body_text()).into_response();
        }
    };
    let request = match json::request(&body) {
        Ok(request) => request,
        Err(error) => return bad(error),
    };
    match envoy.decide(&request).await {
        Ok(response) => {
            let status = match response.overall_code() {
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::OK,
            };
            (status, Json(json::response(&response))).into_response()
        }
        Err(NotDecided::Bad(BadRequest(message))) => bad(message),
        Err(NotDecided::Failed(error)) => Problem::from(error).into_response(),
    }
}

fn bad(detail: String) -> Response {
    Problem::new(StatusCode::BAD_REQUEST, "Not a request of Envoy", detail).into_response()
}
