//! Errors as problem documents (RFC 9457) that say what is allowed.

use axum::response::{IntoResponse, Response};
use http::{
    HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use plimsoll::{Effect, Error};
use serde::Serialize;

/// The error of a request.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    title: &'static str,
    #[serde(serialize_with = "number")]
    status: StatusCode,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<String>,
    /// The nearest right spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    nearest: Option<String>,
    /// The effect that a request whose answer is lost may have had.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_be_applied: Option<bool>,
}

/// The type of a problem that passes (HTTP problem types of the IANA).
const REDUCED: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

pub(super) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

impl Problem {
    pub(crate) fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        let (allowed, nearest, may_be_applied) = (None, None, None);
        Self { kind: None, title, status, detail: detail.into(), allowed, nearest, may_be_applied }
    }

    /// A value in the body that is not allowed. `detail` says what was found.
    pub(super) fn invalid(detail: impl Into<String>, allowed: impl Into<String>) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self::new(status, "Not allowed", detail).allowed(allowed)
    }

    /// Adds what is allowed.
    pub(super) fn allowed(self, allowed: impl Into<String>) -> Self {
        Self { allowed: Some(allowed.into()), ..self }
    }

    /// Adds the nearest right spelling, if there is one.
    pub(super) fn nearest(self, nearest: Option<String>) -> Self {
        Self { nearest, ..self }
    }
}

impl From<Error> for Problem {
    /// Returns status 422 for a mistake in the request, and 503 for a store that cannot answer. The document
    /// names the kind of the failure, and not the address of the store.
    fn from(error: Error) -> Self {
        if error.is_invalid() {
            return Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Not allowed", error.to_string());
        }
        let may_be_applied = error.effect() != Effect::None;
        let effect = match may_be_applied {
            true => "The request may have been applied.",
            false => "Nothing was changed.",
        };
        let detail = format!("The store cannot answer ({}). {effect}", error.kind().name());
        Self {
            kind: Some(REDUCED),
            may_be_applied: Some(may_be_applied),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "The store cannot answer", detail)
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
        // Texts and numbers are always JSON.
        let document = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, document).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        headers.insert(CACHE_CONTROL, NO_STORE);
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

fn number<S: serde::Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}
