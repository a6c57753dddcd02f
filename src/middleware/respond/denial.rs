//! The formats of denials.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, request::Parts};

use super::{grpc, problem, text};
use crate::{decision::Denied, middleware::headers::retry_after};

/// The format of the responses to requests that are not admitted. A gRPC request gets a gRPC status
/// with every format.
#[derive(Clone, Default)]
pub(in crate::middleware) enum DenialFormat {
    /// A problem document (RFC 9457).
    #[default]
    Problem,
    /// Plain text.
    PlainText,
    /// A closure of the application. It is not called when the store cannot answer.
    Custom(Arc<OnDenied>),
}

type OnDenied = dyn Fn(&Denied<'_>, &Parts) -> Response<Bytes> + Send + Sync;

impl DenialFormat {
    /// Returns the response to a denied request. `retry_after` is the wait in seconds, if one is
    /// known.
    pub(in crate::middleware) fn denied(
        &self,
        denied: &Denied<'_>,
        retry_after: Option<u64>,
        jitter: Duration,
        parts: &Parts,
    ) -> Response<Bytes> {
        if let Some(content_type) = grpc::content_type(parts) {
            // The status details contain the wait, so Retry-After is not needed.
            return grpc::denied(denied, content_type, jitter);
        }
        let mut response = match self {
            Self::Problem => problem::denied(denied, retry_after),
            Self::PlainText => text::denied(denied, retry_after),
            Self::Custom(respond) => respond(denied, parts),
        };
        if let Some(seconds) = retry_after {
            retry_after::set(response.headers_mut(), seconds, jitter);
        }
        response
    }

    /// Returns the response when the store cannot answer and a rule denies requests then.
    pub(in crate::middleware) fn unavailable(
        &self,
        jitter: Duration,
        parts: &Parts,
    ) -> Response<Bytes> {
        if let Some(content_type) = grpc::content_type(parts) {
            return grpc::unavailable(content_type, jitter);
        }
        let mut response = match self {
            Self::PlainText => text::unavailable(),
            Self::Problem | Self::Custom(_) => problem::unavailable(),
        };
        retry_after::set(response.headers_mut(), 1, jitter);
        response
    }
}
