//! The body of a request: JSON of a bounded length, which arrives within a bounded time.

use axum::{
    extract::{FromRequest, Request},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::de::DeserializeOwned;

use super::{
    Api,
    problem::{Problem, json},
};

/// A request, parsed from its body.
pub(super) struct Body<T>(pub(super) T);

/// A request with a receipt. It may be longer than the request that the receipt answers.
pub(super) struct ReceiptBody<T>(pub(super) T);

/// The bytes of the numbers and names of fields of a receipt and its settlement, for the most charges.
const RECEIPT_BYTES: usize = 16 * 1_024;

impl<T: DeserializeOwned> FromRequest<Api> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let parts = api.parts();
        json(request, parts.max_body, parts.body_timeout).await.map(Self)
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for ReceiptBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let parts = api.parts();
        // A receipt has the texts of its request in base64url, which has 4 bytes for 3.
        let max = parts.max_body * 2 + RECEIPT_BYTES;
        json(request, max, parts.body_timeout).await.map(Self)
    }
}

/// Returns the response to a request that has not arrived, or was not answered, in time.
pub(crate) fn too_slow() -> Response {
    let status = StatusCode::REQUEST_TIMEOUT;
    Problem::new(status, "Too slow", "The request took too long").into_response()
}
