//! Errors as problem documents (RFC 9457) that say what is allowed.

use axum::response::{IntoResponse, Response};
use http::{
    HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use plimsoll::{Error, error::Effect, error::ErrorKind};
use serde::{Serialize, Serializer};

/// The error of a request, as a problem document that says what is allowed.
///
/// ```
/// use plimsoll_control::web::Problem;
///
/// let problem = Problem::invalid("The cost is 0", "1 to 100");
/// # let _ = problem;
/// ```
#[derive(Debug, Serialize)]
pub struct Problem {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    title: &'static str,
    #[serde(serialize_with = "number")]
    status: StatusCode,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nearest: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    may_be_applied: Option<bool>,
}

/// The media type of a problem document.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The type of a [problem](Problem) that passes (HTTP problem types of the IANA).
const REDUCED: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

impl Problem {
    /// Creates a problem. `detail` says what was found.
    pub fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind: None,
            title,
            status,
            detail: detail.into(),
            allowed: None,
            nearest: None,
            version: None,
            may_be_applied: None,
        }
    }

    /// Creates the problem of a value that is not allowed. `detail` says what was found.
    pub fn invalid(detail: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Not allowed", detail).allowed(allowed)
    }

    /// Adds what is allowed.
    #[must_use]
    pub fn allowed(self, allowed: impl Into<String>) -> Self {
        Self { allowed: Some(allowed.into().into()), ..self }
    }

    /// Adds the nearest right spelling, if there is one.
    #[must_use]
    pub fn nearest(self, nearest: Option<String>) -> Self {
        Self { nearest: nearest.map(Into::into), ..self }
    }

    /// Adds the version of what the request would have changed, if it names another one.
    #[must_use]
    pub fn version(self, version: u64) -> Self {
        Self { version: Some(version), ..self }
    }
}

impl From<Error> for Problem {
    /// Returns status 422 for a mistake in the request, and 503 for a store that cannot answer. The document
    /// names the kind of the failure, and not the address of the store.
    fn from(error: Error) -> Self {
        if error.kind() == ErrorKind::Invalid {
            return Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Not allowed", error.to_string());
        }
        let may_be_applied = error.effect() != Effect::None;
        let effect = if may_be_applied {
            "The request may have been applied."
        } else {
            "Nothing was changed."
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
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
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

fn number<S: Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}
