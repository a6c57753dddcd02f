//! Errors as problem documents (RFC 9457) that say what is allowed.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use plimsoll::{Error, ErrorKind};
use serde_json::json;

use crate::OverrideError;

/// The error of a request to the API.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    title: &'static str,
    detail: String,
    allowed: Option<String>,
    /// The version of the override, if the request names another one.
    version: Option<u64>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, title, detail: detail.into(), allowed: None, version: None }
    }

    /// A mistake in the request: `detail` says what was found.
    pub(super) fn invalid(detail: impl Into<String>, allowed: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Not allowed", detail);
        problem.allowed(allowed)
    }

    /// Data that another service has, which does not answer.
    pub(super) fn unavailable(cause: impl std::fmt::Display) -> Self {
        let detail = format!("No data because the store cannot answer: {cause}");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "The store cannot answer", detail)
    }

    /// The error of a change that may have been made, although there was no answer.
    pub(super) fn late(cause: impl std::fmt::Display) -> Self {
        let detail = format!("The change may have been made: {cause}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "The store did not answer", detail)
    }

    /// The error of a request that only reads.
    pub(super) fn of_read(error: OverrideError) -> Self {
        match error {
            OverrideError::Unavailable { message, .. } => Self::unavailable(message),
            other => other.into(),
        }
    }

    /// Adds what is allowed.
    pub(super) fn allowed(self, allowed: impl Into<String>) -> Self {
        Self { allowed: Some(allowed.into()), ..self }
    }
}

impl From<OverrideError> for Problem {
    fn from(error: OverrideError) -> Self {
        let (status, title) = match &error {
            OverrideError::UnknownPolicy { policy, known } => {
                let detail = format!("There is no policy {policy:?}");
                let problem = Self::new(StatusCode::NOT_FOUND, "No such policy", detail);
                return problem.allowed(known.join(", "));
            }
            OverrideError::Invalid { field, value, allowed } => {
                return Self::invalid(format!("The {field} is {value}"), allowed);
            }
            OverrideError::NotFound => (StatusCode::NOT_FOUND, "No such override"),
            OverrideError::Conflict { found, .. } => {
                let detail = capitalized(&error.to_string());
                let problem = Self::new(StatusCode::CONFLICT, "Another version", detail);
                return Self { version: Some(*found), ..problem };
            }
            OverrideError::TooMany => (StatusCode::INSUFFICIENT_STORAGE, "Too many overrides"),
            OverrideError::Unavailable { may_apply: true, .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "The store did not answer")
            }
            OverrideError::Unavailable { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "The store cannot answer")
            }
            _ => (StatusCode::UNPROCESSABLE_ENTITY, "Not allowed"),
        };
        Self::new(status, title, capitalized(&error.to_string()))
    }
}

/// Returns the message of an error as a sentence.
pub(super) fn capitalized(message: &str) -> String {
    let mut letters = message.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Not allowed", error.to_string())
            }
            _ => Self::unavailable(error),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut document = json!({
            "title": self.title, "status": self.status.as_u16(), "detail": self.detail,
        });
        if let Some(allowed) = self.allowed {
            document["allowed"] = allowed.into();
        }
        if let Some(version) = self.version {
            document["version"] = version.into();
        }
        let mut response = (self.status, Json(document)).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}
