//! The format of denials.

use std::{sync::Arc, time::Duration};

use http::{Response, request::Parts};

use super::{DenialResponse, Rejection, grpc_content_type, grpc_status::GrpcStatus, problem, text};
use crate::{decision::Denied, middleware::headers::Headers, outcome::DenialBody};

/// The format of the responses to requests that are not admitted. A gRPC request gets a gRPC status
/// with every format.
#[derive(Clone, Default)]
pub(in crate::middleware) enum DenialFormat {
    /// A problem document (RFC 9457).
    #[default]
    Problem,
    /// Plain text.
    PlainText,
    /// A closure of the application.
    Custom(Arc<OnDenied>),
}

type OnDenied = dyn Fn(&Rejection<'_>, &Parts) -> DenialResponse + Send + Sync;

impl DenialFormat {
    /// Returns the response to a denied request, which no cache may store.
    pub(in crate::middleware) fn denied(
        &self,
        denied: &Denied<'_>,
        headers: &Headers,
        jitter: Duration,
        parts: &Parts,
    ) -> Response<DenialBody> {
        match grpc_content_type::of_response(parts) {
            Some(content_type) => {
                let mut response = GrpcStatus::denied(denied, jitter).into_response(content_type);
                headers.for_denied(denied).add_to(response.headers_mut());
                response
            }
            None => self.respond(Rejection::denied_by(denied, headers, jitter), parts),
        }
    }

    /// Returns the response to a request that is rejected because the store cannot answer, or because a
    /// lookup has failed. No cache may store it.
    pub(in crate::middleware) fn unavailable(
        &self,
        jitter: Duration,
        parts: &Parts,
    ) -> Response<DenialBody> {
        match grpc_content_type::of_response(parts) {
            Some(content_type) => GrpcStatus::unavailable(jitter).into_response(content_type),
            None => self.respond(Rejection::unavailable(jitter), parts),
        }
    }

    /// Returns the response to a request without a peer address. No cache may store it.
    #[cold]
    pub(in crate::middleware) fn no_peer(&self, parts: &Parts) -> Response<DenialBody> {
        match grpc_content_type::of_response(parts) {
            Some(content_type) => GrpcStatus::no_peer().into_response(content_type),
            None => self.respond(Rejection::no_peer(), parts),
        }
    }

    fn respond(&self, rejection: Rejection<'_>, parts: &Parts) -> Response<DenialBody> {
        match self {
            Self::Problem => problem::response(rejection).map(DenialBody::from),
            Self::PlainText => text::response(rejection).map(DenialBody::from),
            Self::Custom(respond) => {
                let DenialResponse(mut response) = respond(&rejection, parts);
                rejection.complete(&mut response);
                response
            }
        }
    }
}
