//! The format of denials.

use std::{sync::Arc, time::Duration};

use http::{Response, request::Parts};

use super::{
    DenialResponse, Rejection, RejectionKind, grpc_content_type, grpc_status::GrpcStatus, rejection,
};
use crate::{decision::Denied, middleware::headers::Headers, outcome::DenialBody};

/// The format of the responses to requests that are not admitted. A gRPC request gets a gRPC status
/// with every format.
#[derive(Clone, Default)]
pub(in crate::middleware) struct DenialFormat {
    /// True for plain text instead of problem documents (RFC 9457), where the application has no closure.
    pub(in crate::middleware) is_plain: bool,
    /// The closure for [`RejectionKind::OverQuota`].
    pub(in crate::middleware) on_denied: Option<OnRejected>,
    /// The closure for [`RejectionKind::OverCapacity`].
    pub(in crate::middleware) on_over_capacity: Option<OnRejected>,
    /// The closure for [`RejectionKind::Unavailable`].
    pub(in crate::middleware) on_unavailable: Option<OnRejected>,
}

/// A closure of the application that creates a response.
pub(in crate::middleware) type OnRejected =
    Arc<dyn Fn(&Rejection<'_>, &Parts) -> DenialResponse + Send + Sync>;

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

    /// Returns the response to a request that is rejected because the store cannot answer. No cache may store it.
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
        match self.closure(rejection.kind()) {
            Some(respond) => {
                let DenialResponse(mut response) = respond(&rejection, parts);
                rejection.complete(&mut response);
                response
            }
            None if self.is_plain => rejection::plain_text(rejection).map(DenialBody::from),
            None => rejection::problem(rejection).map(DenialBody::from),
        }
    }

    /// Returns the closure for this kind of rejection. A missing peer is a mistake in the program, which the
    /// response of the layer explains.
    fn closure(&self, kind: RejectionKind) -> Option<&OnRejected> {
        match kind {
            RejectionKind::OverQuota => self.on_denied.as_ref(),
            RejectionKind::OverCapacity => self.on_over_capacity.as_ref(),
            RejectionKind::Unavailable => self.on_unavailable.as_ref(),
            RejectionKind::NoPeer => None,
        }
    }
}
