//! The response that a closure of the application gives to a rejected request.

use std::fmt;

use http::Response;

use crate::outcome::DenialBody;

/// The response to a rejected request, made by a closure of
/// [`RateLimitLayer::on_denied`](crate::RateLimitLayer::on_denied),
/// [`on_over_capacity`](crate::RateLimitLayer::on_over_capacity) or
/// [`on_unavailable`](crate::RateLimitLayer::on_unavailable). The closure returns any type
/// that converts into it:
///
/// - a `Response<B>` whose body has [`Bytes`](bytes::Bytes) as data, such as [`String`] or
///   `http_body_util::Full<Bytes>`,
/// - a [`String`], a `&'static str`, [`Bytes`](bytes::Bytes) or a [`StatusCode`](http::StatusCode),
/// - one of them with a status: `(StatusCode, String)`,
/// - with the feature `axum`, every type that implements axum's `IntoResponse`, such as `Json` and
///   tuples of headers.
///
/// The body may be a stream. If the stream fails, the body of the response ends at that point.
pub struct DenialResponse(pub(super) Response<DenialBody>);

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

/// The conversions that axum has as well, so that a program compiles with the feature and without it.
#[cfg(not(feature = "axum"))]
mod conversions {
    use std::error::Error;

    use bytes::Bytes;
    use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
    use http_body::Body;

    use super::{DenialBody, DenialResponse};

    impl<B> From<Response<B>> for DenialResponse
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        fn from(response: Response<B>) -> Self {
            Self(response.map(DenialBody::boxed))
        }
    }

    impl From<String> for DenialResponse {
        fn from(text: String) -> Self {
            document(text.into(), "text/plain; charset=utf-8")
        }
    }

    impl From<&'static str> for DenialResponse {
        fn from(text: &'static str) -> Self {
            document(Bytes::from_static(text.as_bytes()), "text/plain; charset=utf-8")
        }
    }

    impl From<Bytes> for DenialResponse {
        fn from(bytes: Bytes) -> Self {
            document(bytes, "application/octet-stream")
        }
    }

    impl From<StatusCode> for DenialResponse {
        fn from(status: StatusCode) -> Self {
            let mut response = Response::new(DenialBody::Document(Bytes::new()));
            *response.status_mut() = status;
            Self(response)
        }
    }

    impl<R: Into<DenialResponse>> From<(StatusCode, R)> for DenialResponse {
        fn from((status, response): (StatusCode, R)) -> Self {
            let Self(mut response) = response.into();
            *response.status_mut() = status;
            Self(response)
        }
    }

    fn document(body: Bytes, content_type: &'static str) -> DenialResponse {
        let mut response = Response::new(DenialBody::Document(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        DenialResponse(response)
    }
}
