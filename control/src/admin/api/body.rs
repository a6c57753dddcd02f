//! The body of a change: JSON of a bounded length, which is read within a bounded time.

use std::{future::poll_fn, pin::Pin, time::Duration};

use axum::{
    body::{Body, HttpBody},
    extract::{FromRequest, Request},
};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use tokio::time::timeout;

use super::fields::{Fields, FromFields};
use crate::admin::problem::Problem;

/// The longest body, in bytes.
const MAX_BYTES: usize = 16 * 1_024;

/// The longest body that is read to its end, so that the client reads the answer. A longer one breaks the
/// connection.
const MAX_DISCARDED: usize = 4 * 1_024 * 1_024;

/// The time for reading a body.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest reason, in bytes: the one that the audit log takes.
const MAX_REASON: usize = 1_000;

/// A change that an operator asks for.
pub(in crate::admin) struct Change<T>(pub(in crate::admin) T);

impl<T: FromFields, S: Send + Sync> FromRequest<S> for Change<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let (status, title) = (StatusCode::UNSUPPORTED_MEDIA_TYPE, "Not JSON");
            let problem = Problem::new(status, title, "The body of the request is not JSON");
            return Err(problem.allowed("the header \"Content-Type: application/json\""));
        }
        let text = timeout(PATIENCE, read(request.into_body())).await.map_err(|_| {
            let detail = format!("The body took longer than {PATIENCE:?}");
            Problem::new(StatusCode::REQUEST_TIMEOUT, "Too slow", detail)
        })??;
        Fields::read(&text).map(Self)
    }
}

/// Returns the reason of a change, without spaces around it.
pub(super) fn reason(text: &str) -> Result<&str, Problem> {
    let text = text.trim();
    let length = text.len();
    if length == 0 || length > MAX_REASON {
        let detail = format!("The reason has {length} bytes");
        return Err(Problem::invalid(detail, format!("1 to {MAX_REASON} bytes")));
    }
    Ok(text)
}

async fn read(mut body: Body) -> Result<Vec<u8>, Problem> {
    let (mut text, mut length) = (Vec::new(), 0);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let broken = || Problem::new(StatusCode::BAD_REQUEST, "Broken", "The body has no end");
        let Ok(data) = frame.map_err(|_| broken())?.into_data() else {
            continue;
        };
        length += data.len();
        if length <= MAX_BYTES {
            text.extend_from_slice(&data);
        } else if length > MAX_DISCARDED {
            break;
        }
    }
    if length > MAX_BYTES {
        let problem =
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "Too long", "The body is too long");
        return Err(problem.allowed(format!("at most {MAX_BYTES} bytes")));
    }
    Ok(text)
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}
