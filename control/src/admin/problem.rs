//! The problems of requests to the admin API.

use http::StatusCode;

use crate::{OverrideError, web::Problem};

/// Returns the [problem](Problem) of a request that only reads.
pub(super) fn of_read(error: OverrideError) -> Problem {
    match error {
        OverrideError::Unavailable { message, .. } => {
            let detail = format!("No data because the store cannot answer: {message}");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "The store cannot answer", detail)
        }
        other => other.into(),
    }
}

impl From<OverrideError> for Problem {
    fn from(error: OverrideError) -> Self {
        let (status, title) = match &error {
            OverrideError::UnknownPolicy { policy, known } => {
                let detail = format!("There is no policy {policy:?}");
                let problem = Self::new(StatusCode::NOT_FOUND, "No such policy", detail);
                let known = known.join(", ");
                let none = "nothing: no policy is registered".to_owned();
                return problem.allowed(if known.is_empty() { none } else { known });
            }
            OverrideError::Invalid { field, value, allowed } => {
                return Self::invalid(format!("The {field} is {value}"), allowed);
            }
            OverrideError::Key(error) => {
                let allowed = error.allowed().unwrap_or("a key, which has no digest");
                return Self::invalid(capitalized(&error.to_string()), allowed);
            }
            OverrideError::Config(_) => (StatusCode::INTERNAL_SERVER_ERROR, "Not connected"),
            OverrideError::NotFound => (StatusCode::NOT_FOUND, "No such override"),
            OverrideError::Conflict { found, .. } => {
                let detail = capitalized(&error.to_string());
                let problem = Self::new(StatusCode::CONFLICT, "Another version", detail);
                return problem.version(*found);
            }
            OverrideError::TooMany => (StatusCode::INSUFFICIENT_STORAGE, "Too many overrides"),
            OverrideError::Unavailable { may_apply: true, .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "The store did not answer")
            }
            OverrideError::Unavailable { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "The store cannot answer")
            }
        };
        Self::new(status, title, capitalized(&error.to_string()))
    }
}

/// Returns the message of an error as a sentence.
pub(super) fn capitalized(message: &str) -> String {
    let mut letters = message.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
