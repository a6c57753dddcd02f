//! The responses of handlers that check a limit themselves.

use std::time::Duration;

use http::Response;

use super::{Rejection, rejection};
use crate::{decision::Denied, middleware::Headers};

impl Denied<'_> {
    /// Returns the response that a [`RateLimitLayer`](crate::RateLimitLayer) gives to a denied
    /// request, for a handler that checks a limit itself: status 429 or 403, a problem document,
    /// `Retry-After`, `Cache-Control: no-store` and the rate limit `headers`.
    ///
    /// With the feature `axum`, a `Denied` is also an `IntoResponse`, with [`Headers::default`]. With
    /// the feature `tonic`, it converts into a `tonic::Status`.
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use plimsoll::{Decision, Headers, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// # let limiter = Limiter::in_memory();
    /// let exports = Policy::new("exports", Quota::per_day(1))?;
    /// # limiter.check(exports.charge("alice", 1)).await?;
    /// let response = match limiter.check(exports.charge("alice", 1)).await? {
    ///     Decision::Allowed(_) => Response::new("the export".to_owned()),
    ///     Decision::Denied(denied) => denied.to_response(&Headers::default()),
    /// };
    /// assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    /// assert!(response.headers().contains_key("retry-after"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn to_response(&self, headers: &Headers) -> Response<String> {
        rejection::problem(Rejection::denied_by(self, headers, Duration::ZERO))
    }
}

#[cfg(feature = "axum")]
mod axum {
    use axum::response::{IntoResponse, Response};

    use crate::{decision::Denied, middleware::Headers};

    /// The response is that of [`Denied::to_response`] with [`Headers::default`].
    impl IntoResponse for Denied<'_> {
        fn into_response(self) -> Response {
            self.to_response(&Headers::default()).into_response()
        }
    }
}

#[cfg(feature = "tonic")]
mod tonic {
    use std::time::Duration;

    use http::HeaderMap;
    use tonic::{Code, Status, metadata::MetadataMap};

    use crate::{decision::Denied, middleware::respond::grpc_status::GrpcStatus};

    /// The status has the code, the message and the details that a
    /// [`RateLimitLayer`](crate::RateLimitLayer) sends, and its metadata `grpc-retry-pushback-ms`
    /// and `cache-control`. It has no rate limit headers, because a status may be sent in trailers,
    /// where these headers are not allowed.
    impl From<Denied<'_>> for Status {
        fn from(denied: Denied<'_>) -> Self {
            let status = GrpcStatus::denied(&denied, Duration::ZERO);
            let mut metadata = HeaderMap::new();
            status.add_metadata(&mut metadata);
            let (code, metadata) =
                (Code::from_i32(status.code.into()), MetadataMap::from_headers(metadata));
            Self::with_details_and_metadata(code, status.message, status.details.into(), metadata)
        }
    }
}
