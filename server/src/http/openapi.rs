//! The description of the API for programs.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

/// The OpenAPI 3.1 document of the API, as `GET /openapi.json` answers it.
pub const DOCUMENT: &str = include_str!("../../openapi.json");

/// Returns the OpenAPI document.
pub(super) async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}
