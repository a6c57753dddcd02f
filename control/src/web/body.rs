//! The body of a request: JSON of a bounded length, which arrives within a bounded time.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::Request,
};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use super::Problem;
use crate::{
    Format,
    document::{self, Mistake},
};

/// Reads the JSON body of a request, of at most `max_bytes` that arrive within `patience`.
///
/// # Errors
///
/// Returns status 415 for another media type, 413 for a longer body, 408 for a slower one, 400 for a text that is not
/// JSON or has no end, and 422 for JSON of another form. The last one names all [mistakes](Mistake).
pub async fn json<T: DeserializeOwned>(
    request: Request,
    max_bytes: usize,
    patience: Duration,
) -> Result<T, Problem> {
    if !is_json(request.headers()) {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let problem = Problem::new(status, "Not JSON", "The body of the request is not JSON");
        return Err(problem.allowed("the header \"Content-Type: application/json\""));
    }
    // A length that the client states is judged before the body is read.
    if request.body().size_hint().lower() > max_bytes as u64 {
        return Err(too_long(max_bytes));
    }
    let text = timeout(patience, read(request.into_body(), max_bytes)).await;
    let text = text.map_err(|_| {
        let detail = format!("The body took longer than {patience:?}");
        Problem::new(StatusCode::REQUEST_TIMEOUT, "Too slow", detail)
    })??;
    parse(&text)
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    // Otherwise the items of a list would be the fields, in the order of the code.
    let is_list = text.trim_ascii_start().first() == Some(&b'[');
    match serde_json::from_slice(text) {
        Ok(body) if !is_list => Ok(body),
        Err(error) if error.classify() != Category::Data => {
            Err(Problem::new(StatusCode::BAD_REQUEST, "Malformed", error.to_string()))
        }
        _ => Err(not_allowed::<T>(text)),
    }
}

/// Returns the [problem](Problem) of a body that is JSON of another form. It names all mistakes.
fn not_allowed<T: DeserializeOwned>(text: &[u8]) -> Problem {
    let text = str::from_utf8(text).unwrap_or_default();
    let mistakes = document::read::<T>(text, Format::Json).err().unwrap_or_default();
    let details: Vec<_> = mistakes.iter().map(Mistake::in_a_line).collect();
    let detail = if details.is_empty() {
        "The body has another form".to_owned()
    } else {
        details.join("; ")
    };
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "Not allowed", detail)
}

async fn read(body: Body, max: usize) -> Result<Bytes, Problem> {
    let read = Limited::new(body, max).collect().await;
    read.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            return too_long(max);
        }
        Problem::new(StatusCode::BAD_REQUEST, "Broken", "The body has no end")
    })
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
