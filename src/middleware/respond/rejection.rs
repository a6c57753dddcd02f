//! A rejected request: the reason, the status, the wait, and the headers of the response.

use std::time::Duration;

use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};

use super::{caching, problem};
use crate::{
    decision::Denied,
    middleware::headers::{Headers, number, retry_after},
};

/// A request that a [`RateLimitLayer`](crate::RateLimitLayer) rejects, as the closures of
/// [`on_denied`](crate::RateLimitLayer::on_denied),
/// [`on_over_capacity`](crate::RateLimitLayer::on_over_capacity) and
/// [`on_unavailable`](crate::RateLimitLayer::on_unavailable) see it.
///
/// # Examples
///
/// A JSON body with the wait and the name of the policy:
///
/// ```
/// use http::header::CONTENT_TYPE;
/// use serde_json::json;
/// # use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
/// # let rule = Rule::new(Policy::new("p", Quota::per_minute(60))?, by::header("x-api-key"));
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule).on_denied(|rejection, _parts| {
///     let binding = rejection.denied().and_then(|denied| denied.binding());
///     let body = json!({
///         "error": rejection.status().as_u16(),
///         "retry_after": rejection.retry_after_seconds(),
///         "policy": binding.map(|outcome| outcome.policy().name()),
///     });
///     ([(CONTENT_TYPE, "application/json")], body.to_string())
/// });
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rejection<'a> {
    kind: RejectionKind,
    denied: Option<&'a Denied<'a>>,
    retry_after: Option<u64>,
    headers: HeaderMap,
}

/// The reason why a request is rejected, returned by [`Rejection::kind`].
///
/// One function for all closures of a layer:
///
/// ```
/// use http::request::Parts;
/// use plimsoll::{Limiter, Quota, RateLimitLayer, Rejection, RejectionKind};
///
/// fn sorry(rejection: &Rejection<'_>, _parts: &Parts) -> &'static str {
///     match rejection.kind() {
///         RejectionKind::OverQuota => "slow down",
///         RejectionKind::OverCapacity => "this request is too large",
///         _ => "the service is busy",
///     }
/// }
///
/// let layer = RateLimitLayer::per_ip(Limiter::in_memory(), Quota::per_minute(100))?
///     .on_denied(sorry)
///     .on_over_capacity(sorry)
///     .on_unavailable(sorry);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// There are not enough units now: status 429.
    OverQuota,
    /// The cost exceeds what a quota can ever hold, so that waiting does not help: status 403.
    OverCapacity,
    /// The [`Store`](crate::store::Store) cannot answer or a lookup of a rule has failed, and a rule
    /// says [`OnFailure::Deny`](crate::OnFailure::Deny): status 503.
    Unavailable,
    /// The request has no peer address, although it is to be charged
    /// ([`Identity::NoPeer`](crate::Identity::NoPeer)): status 500.
    NoPeer,
}

impl<'a> Rejection<'a> {
    /// Creates the rejection of a denied request.
    pub(super) fn denied_by(denied: &'a Denied<'_>, headers: &Headers, jitter: Duration) -> Self {
        let seconds = retry_after::seconds(denied);
        let wait = seconds.map(|seconds| retry_after::with_jitter(seconds, jitter));
        let kind = match denied.is_over_capacity() {
            true => RejectionKind::OverCapacity,
            false => RejectionKind::OverQuota,
        };
        let mut rejection = Self::new(kind, Some(denied), wait);
        headers.for_denied(denied).add_to(&mut rejection.headers);
        rejection
    }

    /// Creates the rejection of a request for which the store or a lookup has failed.
    pub(super) fn unavailable(jitter: Duration) -> Self {
        let wait = retry_after::with_jitter(1, jitter);
        Self::new(RejectionKind::Unavailable, None, Some(wait))
    }

    /// Creates the rejection of a request without a peer address.
    pub(super) fn no_peer() -> Self {
        Self::new(RejectionKind::NoPeer, None, None)
    }

    fn new(kind: RejectionKind, denied: Option<&'a Denied<'a>>, retry_after: Option<u64>) -> Self {
        // The capacity is enough for all headers of a response, so that the map does not grow.
        let mut headers = HeaderMap::with_capacity(8);
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, number(seconds));
        }
        caching::forbid(&mut headers);
        Self { kind, denied, retry_after, headers }
    }

    /// Returns the reason.
    #[must_use]
    pub fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// Returns the decision, or `None` if there is none ([`RejectionKind::Unavailable`],
    /// [`RejectionKind::NoPeer`]).
    #[must_use]
    pub fn denied(&self) -> Option<&'a Denied<'a>> {
        self.denied
    }

    /// Returns the status of the response: 429, 403, 503 or 500.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.kind() {
            RejectionKind::OverQuota => StatusCode::TOO_MANY_REQUESTS,
            RejectionKind::OverCapacity => StatusCode::FORBIDDEN,
            RejectionKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            RejectionKind::NoPeer => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the wait in seconds as `Retry-After` shows it: rounded up, and with the
    /// [jitter](crate::RateLimitLayer::jitter) of the layer.
    ///
    /// It is `None` if the response has no `Retry-After`, because waiting does not help or because
    /// the store named no wait.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
    }

    /// Returns the headers that the layer sets in the response: `Retry-After`, `Cache-Control` and
    /// the rate limit [`Headers`] of the layer.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the response of a layer without a closure: a problem document (RFC 9457).
    #[must_use]
    pub fn to_response(&self) -> Response<String> {
        problem::response(self.clone())
    }

    /// Creates the response with a body of this crate.
    pub(super) fn into_response(self, content_type: HeaderValue, body: String) -> Response<String> {
        let mut response = Response::new(body);
        *response.status_mut() = self.status();
        *response.headers_mut() = self.headers;
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }

    /// Completes a response of the application: sets the status unless the application has chosen
    /// one, and the headers.
    pub(super) fn complete<B>(self, response: &mut Response<B>) {
        if response.status() == StatusCode::OK {
            *response.status_mut() = self.status();
        }
        caching::remove_targeted(response.headers_mut());
        response.headers_mut().extend(self.headers);
    }
}
