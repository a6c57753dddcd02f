//! The body of a request: JSON of a bounded length, which arrives within a bounded time.

use std::error::Error;

use axum::{
    body::{Body as HttpBody, Bytes},
    extract::{FromRequest, Request},
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use super::{Api, problem::Problem};

/// A request, parsed from its body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Api> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let parts = api.parts();
        if !is_json(request.headers()) {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            let problem = Problem::new(status, "Not JSON", "The body of the request is not JSON");
            return Err(problem.allowed("the header \"Content-Type: application/json\""));
        }
        // A length that the client states is judged before the body is read.
        if stated_length(request.headers()).is_some_and(|length| length > parts.max_body as u64) {
            return Err(too_long(parts.max_body));
        }
        let text = timeout(parts.body_timeout, read(request.into_body(), parts.max_body));
        let text = text.await.map_err(|_| {
            too_slow_because(format!("The body took longer than {:?}", parts.body_timeout))
        })??;
        parse(&text).map(Self)
    }
}

/// Returns the response to a request that has not arrived, or was not answered, in time.
pub(crate) fn too_slow() -> Response {
    too_slow_because("The request took too long").into_response()
}

fn too_slow_because(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "Too slow", detail)
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(text).map_err(|error| match error.classify() {
        Category::Data => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Not allowed", error.to_string())
        }
        _ => Problem::new(StatusCode::BAD_REQUEST, "Malformed", error.to_string()),
    })
}

async fn read(body: HttpBody, max: usize) -> Result<Bytes, Problem> {
    let read = Limited::new(body, max).collect().await;
    read.map(http_body_util::Collected::to_bytes).map_err(|error| match is_of_length(&*error) {
        true => too_long(max),
        false => Problem::new(StatusCode::BAD_REQUEST, "Broken", "The body has no end"),
    })
}

/// Returns whether a body is too long. The listener bounds all bodies too, and its error is inside another one.
fn is_of_length(error: &(dyn Error + 'static)) -> bool {
    error.is::<LengthLimitError>() || error.source().is_some_and(is_of_length)
}

fn stated_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_long(max: usize) -> Problem {
    let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "Too long", "The body is too long");
    problem.allowed(format!("at most {max} bytes"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}
