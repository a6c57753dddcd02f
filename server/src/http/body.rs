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

/// The longest body of a request, in bytes.
const MAX_BODY: usize = 64 * 1_024;

/// The longest body of a request with a receipt. A receipt has the texts of its request in base64url, which has 4 bytes
/// for 3. The names of fields and the numbers of the most charges have less than 16 KiB.
const MAX_RECEIPT_BODY: usize = MAX_BODY * 2 + 16 * 1_024;

impl<T: DeserializeOwned> FromRequest<Api> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        json(request, MAX_BODY, api.parts().body_timeout).await.map(Self)
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for ReceiptBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        json(request, MAX_RECEIPT_BODY, api.parts().body_timeout).await.map(Self)
    }
}

/// Returns the response to a request that has not arrived, or was not answered, in time.
pub(crate) fn too_slow() -> Response {
    let status = StatusCode::REQUEST_TIMEOUT;
    Problem::new(status, "Too slow", "The request took too long").into_response()
}
