//! The body of a request: JSON of a bounded length, which arrives within a bounded time.

use axum::{
    body::{Body as HttpBody, Bytes},
    extract::{FromRequest, Request},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use plimsoll_control::{
    Format,
    document::{self, Mistake},
};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use super::{Api, problem::Problem};

/// A request, parsed from its body.
pub(super) struct Body<T>(pub(super) T);

/// A request with a receipt. It may be longer than the request that the receipt answers.
pub(super) struct ReceiptBody<T>(pub(super) T);

/// The bytes of the numbers and names of fields of a receipt and its settlement, for the most charges.
const RECEIPT_BYTES: usize = 16 * 1_024;

impl<T: DeserializeOwned> FromRequest<Api> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        json(request, api, api.parts().max_body).await.map(Self)
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for ReceiptBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        // A receipt has the texts of its request in base64url, which has 4 bytes for 3.
        json(request, api, api.parts().max_body * 2 + RECEIPT_BYTES).await.map(Self)
    }
}

async fn json<T: DeserializeOwned>(request: Request, api: &Api, max: usize) -> Result<T, Problem> {
    if !is_json(request.headers()) {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let problem = Problem::new(status, "Not JSON", "The body of the request is not JSON");
        return Err(problem.allowed("the header \"Content-Type: application/json\""));
    }
    // A length that the client states is judged before the body is read.
    if request.body().size_hint().lower() > max as u64 {
        return Err(too_long(max));
    }
    let time = api.parts().body_timeout;
    let text = timeout(time, read(request.into_body(), max)).await;
    let text =
        text.map_err(|_| too_slow_because(format!("The body took longer than {time:?}")))??;
    parse(&text)
}

/// Returns the response to a request that has not arrived, or was not answered, in time.
pub(crate) fn too_slow() -> Response {
    too_slow_because("The request took too long").into_response()
}

fn too_slow_because(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "Too slow", detail)
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

/// Returns the problem of a body that is JSON of another form. It names all mistakes.
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

async fn read(body: HttpBody, max: usize) -> Result<Bytes, Problem> {
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
