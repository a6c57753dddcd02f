//! The format of denials, and the response that a closure of the application gives.

use std::{fmt, sync::Arc};

use http::{Response, request::Parts};

use super::{Rejection, RejectionKind, grpc, rejection};
use crate::outcome::DenialBody;

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
    /// Returns the response to a rejected request, which no cache may store.
    pub(in crate::middleware) fn respond(
        &self,
        rejection: Rejection<'_>,
        parts: &Parts,
    ) -> Response<DenialBody> {
        if let Some(content_type) = grpc::content_type(parts) {
            return grpc::respond(rejection, content_type);
        }
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

/// The response to a rejected request, made by a closure of
/// [`RateLimitLayer::on_denied`](crate::RateLimitLayer::on_denied),
/// [`on_over_capacity`](crate::RateLimitLayer::on_over_capacity) or
/// [`on_unavailable`](crate::RateLimitLayer::on_unavailable). The closure returns any type
/// that converts into it:
///
/// - a `Response<B>` whose body has [`Bytes`](bytes::Bytes) as data, such as [`String`] or
///   `http_body_util::Full<Bytes>`,
/// - a [`String`] or a `&'static str`,
/// - with the feature `axum`, every type that implements axum's `IntoResponse`, such as `Json`, a status with a
///   body, and tuples of headers.
///
/// The body may be a stream. If the stream fails, the body of the response ends at that point.
pub struct DenialResponse(Response<DenialBody>);

impl fmt::Debug for DenialResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenialResponse")
            .field("status", &self.0.status())
            .field("headers", self.0.headers())
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "axum")]
mod conversions {
    use axum::response::IntoResponse;

    use super::{DenialBody, DenialResponse};

    impl<R: IntoResponse> From<R> for DenialResponse {
        fn from(response: R) -> Self {
            Self(response.into_response().map(DenialBody::boxed))
        }
    }
}

/// Without the feature `axum`, a closure returns a response or a text.
#[cfg(not(feature = "axum"))]
mod conversions {
    use bytes::Bytes;
    use http::{HeaderValue, Response, header::CONTENT_TYPE};
    use http_body::Body;

    use super::{DenialBody, DenialResponse};

    impl<B> From<Response<B>> for DenialResponse
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        fn from(response: Response<B>) -> Self {
            Self(response.map(DenialBody::boxed))
        }
    }

    impl From<String> for DenialResponse {
        fn from(text: String) -> Self {
            const TEXT_PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

            let mut response = Response::new(DenialBody::from(text));
            response.headers_mut().insert(CONTENT_TYPE, TEXT_PLAIN);
            Self(response)
        }
    }

    impl From<&'static str> for DenialResponse {
        fn from(text: &'static str) -> Self {
            text.to_owned().into()
        }
    }
}
