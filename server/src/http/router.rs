//! The routes of the API.

use axum::{
    Router,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{Method, StatusCode, header::CONTENT_TYPE};

use super::{Api, check, problem::Problem, reset, settle};

/// The OpenAPI 3.1 document of the [`router`], as `GET /openapi.json` answers it.
pub const DOCUMENT: &str = include_str!("../../openapi.json");

/// Creates the routes of the HTTP API. [`DOCUMENT`] describes them.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/check", post(check::check))
        .route("/v1/peek", post(check::peek))
        .route("/v1/reserve", post(check::reserve))
        .route("/v1/settle", post(settle::settle))
        .route("/v1/refund", post(settle::refund))
        .route("/v1/reset", post(reset::reset))
        .route("/v1/slots/acquire", post(check::acquire))
        .route("/v1/slots/renew", post(settle::renew))
        .route("/v1/slots/release", post(settle::release))
        .route("/openapi.json", get(document))
        .with_state(api)
}

/// Adds the answers to requests for paths and methods that a router does not have.
pub(crate) fn with_fallbacks(router: Router) -> Router {
    router.fallback(not_found).method_not_allowed_fallback(method_not_allowed)
}

async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

/// Answers 404 without the path, which may contain a key or a token.
async fn not_found() -> Response {
    let problem =
        Problem::new(StatusCode::NOT_FOUND, "No such path", "There is nothing at this path");
    problem.allowed("the paths of /openapi.json").into_response()
}

async fn method_not_allowed(method: Method) -> Response {
    let detail = format!("The path does not take the method {method}");
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Another method", detail);
    problem.allowed("POST for the paths below /v1/, and GET for the others").into_response()
}
