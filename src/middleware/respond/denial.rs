//! The formats of denials.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, header::CACHE_CONTROL, request::Parts};

use super::{grpc, grpc_content_type, problem, text};
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
    /// Returns the response to a denied request, which no cache may store. `retry_after` is the wait
    /// in seconds, if one is known.
    pub(in crate::middleware) fn denied(
        &self,
        denied: &Denied<'_>,
        retry_after: Option<u64>,
        jitter: Duration,
        parts: &Parts,
    ) -> Response<Bytes> {
        if let Some(content_type) = grpc_content_type::of_response(parts) {
            // The status details contain the wait, so Retry-After is not needed.
            return not_to_store(grpc::denied(denied, content_type, jitter));
        }
        let mut response = match self {
            Self::Problem => problem::denied(denied, retry_after),
            Self::PlainText => text::denied(denied, retry_after),
            Self::Custom(respond) => respond(denied, parts),
        };
        if let Some(seconds) = retry_after {
            retry_after::set(response.headers_mut(), seconds, jitter);
        }
        not_to_store(response)
    }

    /// Returns the response when the store cannot answer and a rule denies requests then. No cache
    /// may store it.
    pub(in crate::middleware) fn unavailable(
        &self,
        jitter: Duration,
        parts: &Parts,
    ) -> Response<Bytes> {
        if let Some(content_type) = grpc_content_type::of_response(parts) {
            return not_to_store(grpc::unavailable(content_type, jitter));
        }
        let mut response = match self {
            Self::PlainText => text::unavailable(),
            Self::Problem | Self::Custom(_) => problem::unavailable(),
        };
        retry_after::set(response.headers_mut(), 1, jitter);
        not_to_store(response)
    }
}

/// Forbids caches to store a response, whatever a closure of the application has set. RFC 6585,
/// section 4, requires this for 429. The other statuses are as short-lived, and a gRPC status is in
/// a 200 response, which caches may store by default.
fn not_to_store(mut response: Response<Bytes>) -> Response<Bytes> {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
