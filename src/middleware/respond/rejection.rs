//! A rejected request: the reason, the status, the wait, and the response as a problem document (RFC 9457)
//! or as plain text; and the response of a closure of the application.

use std::{fmt, time::Duration};

use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
};
use smallvec::SmallVec;

use crate::{
    decision::{Denied, Outcome, Verdict},
    middleware::headers::{Headers, is_estimate, number, retry_after, with_jitter},
    outcome::DenialBody,
    rule::MISSING_PEER,
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
///         "policy": binding.map(|outcome| outcome.charge().policy().name()),
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
    jitter: Duration,
    headers: HeaderMap,
}

/// The reason why a request is rejected, returned by [`Rejection::kind`].
///
/// One function for all closures of a layer:
///
/// ```
/// use http::request::Parts;
/// use plimsoll::{Limiter, Quota, RateLimitLayer, layer::{Rejection, RejectionKind}};
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
    /// The [`Store`](crate::store::Store) cannot answer, and a rule
    /// says [`OnFailure::Deny`](crate::OnFailure::Deny): status 503.
    Unavailable,
    /// The request has no peer address, although it is to be charged
    /// ([`Identity::NoPeer`](crate::key::Identity::NoPeer)): status 500.
    NoPeer,
}

/// The least jitter of a wait that is an estimate.
const MIN_ESTIMATE_JITTER: Duration = Duration::from_secs(1);

impl<'a> Rejection<'a> {
    /// Creates the rejection of a denied check, for a handler that checks a limit itself. Its
    /// [response](Self::to_response) is the same as a [`RateLimitLayer`](crate::RateLimitLayer) gives to a
    /// denied request: status 429 or 403, a problem document, `Retry-After`, `Cache-Control: no-store` and the
    /// rate limit `headers`.
    ///
    /// With the feature `axum`, a `Denied` is also an `IntoResponse`, with [`Headers::default`]. With
    /// the feature `tonic`, it converts into a `tonic::Status`.
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use plimsoll::{Decision, Limiter, Policy, Quota, layer::{Headers, Rejection}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// # let limiter = Limiter::in_memory();
    /// let exports = Policy::new("exports", Quota::per_day(1))?;
    /// # limiter.check(exports.charge("alice", 1)).await?;
    /// let response = match limiter.check(exports.charge("alice", 1)).await? {
    ///     Decision::Allowed(_) => Response::new("the export".to_owned()),
    ///     Decision::Denied(denied) => Rejection::of(&denied, &Headers::default()).to_response(),
    /// };
    /// assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    /// assert!(response.headers().contains_key("retry-after"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn of(denied: &'a Denied<'_>, headers: &Headers) -> Self {
        Self::denied_by(denied, headers, Duration::ZERO)
    }

    /// Creates the rejection of a denied request.
    pub(in crate::middleware) fn denied_by(
        denied: &'a Denied<'_>,
        headers: &Headers,
        jitter: Duration,
    ) -> Self {
        let binding = denied.binding();
        let is_estimate = binding.is_some_and(is_estimate);
        let jitter = if is_estimate { jitter.max(MIN_ESTIMATE_JITTER) } else { jitter };
        let wait = binding.and_then(retry_after).map(|seconds| with_jitter(seconds, jitter));
        let kind = match binding.map(Outcome::verdict) {
            Some(Verdict::OverCapacity) => RejectionKind::OverCapacity,
            _ => RejectionKind::OverQuota,
        };
        let mut rejection = Self::new(kind, Some(denied), wait, jitter);
        headers.for_denied(denied).add_to(&mut rejection.headers);
        rejection
    }

    /// Creates the rejection of a request for which the store has failed.
    pub(in crate::middleware) fn unavailable(jitter: Duration) -> Self {
        let wait = with_jitter(1, jitter);
        Self::new(RejectionKind::Unavailable, None, Some(wait), jitter)
    }

    /// Creates the rejection of a request without a peer address.
    pub(in crate::middleware) fn no_peer() -> Self {
        Self::new(RejectionKind::NoPeer, None, None, Duration::ZERO)
    }

    fn new(
        kind: RejectionKind,
        denied: Option<&'a Denied<'a>>,
        retry_after: Option<u64>,
        jitter: Duration,
    ) -> Self {
        // A denial in gRPC has eleven headers. In a map that is nearly full, an insertion compares and moves several
        // entries.
        let mut headers = HeaderMap::with_capacity(16);
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, number(seconds));
        }
        forbid_caching(&mut headers);
        Self { kind, denied, retry_after, jitter, headers }
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

    /// Returns the sentence that says why the request is rejected, in three parts.
    pub(super) fn detail<'d>(&self, digits: &'d mut itoa::Buffer) -> [&'d str; 3] {
        match (self.kind, self.retry_after) {
            (RejectionKind::OverQuota, Some(seconds)) => {
                ["The quota allows this request again in ", digits.format(seconds), " seconds."]
            }
            (RejectionKind::OverQuota, None) => {
                ["The quota allows no such request at the moment.", "", ""]
            }
            (RejectionKind::OverCapacity, _) => [
                "This request costs more than the quota can ever hold: waiting does not help.",
                "",
                "",
            ],
            (RejectionKind::Unavailable, _) => {
                ["The request cannot be admitted at the moment.", "", ""]
            }
            (RejectionKind::NoPeer, _) => [MISSING_PEER, "", ""],
        }
    }

    pub(super) fn into_headers(self) -> HeaderMap {
        self.headers
    }

    /// Returns the longest random part of the wait.
    pub(super) fn jitter(&self) -> Duration {
        self.jitter
    }

    /// Returns the response of a layer without a closure: a problem document (RFC 9457).
    #[must_use]
    pub fn to_response(&self) -> Response<String> {
        self.clone().into_problem()
    }

    /// Creates the response with a body of this crate.
    fn into_response(self, content_type: HeaderValue, body: String) -> Response<String> {
        let mut response = Response::new(body);
        *response.status_mut() = self.status();
        *response.headers_mut() = self.headers;
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }

    /// Completes a response of the application: sets the status unless the application has chosen
    /// one, and the headers.
    pub(in crate::middleware) fn complete(
        self,
        DenialResponse(mut response): DenialResponse,
    ) -> Response<DenialBody> {
        if response.status() == StatusCode::OK {
            *response.status_mut() = self.status();
        }
        remove_targeted_caching(response.headers_mut());
        response.headers_mut().extend(self.headers);
        response
    }

    /// Returns the response with a problem document, which has the names of the violated policies.
    pub(in crate::middleware) fn into_problem(self) -> Response<String> {
        let mut digits = itoa::Buffer::new();
        let mut parts: SmallVec<[&str; 12]> = SmallVec::new();
        parts.push(match self.kind {
            RejectionKind::OverQuota => OVER_QUOTA,
            RejectionKind::OverCapacity => OVER_CAPACITY,
            RejectionKind::Unavailable => UNAVAILABLE,
            RejectionKind::NoPeer => NO_PEER,
        });
        parts.extend(self.detail(&mut digits));
        parts.push("\"");
        if let Some(denied) = self.denied {
            for (index, outcome) in violations(denied).enumerate() {
                // The names of policies contain no characters that JSON escapes.
                let start = if index == 0 { r#","violated-policies":[""# } else { r#"",""# };
                parts.extend([start, outcome.charge().policy().name()]);
            }
            parts.push("\"]");
        }
        parts.push("}");
        let document = parts.concat();
        self.into_response(PROBLEM_JSON, document)
    }

    /// Returns the response with one line of text.
    pub(in crate::middleware) fn into_plain_text(self) -> Response<String> {
        let mut digits = itoa::Buffer::new();
        let [start, wait, end] = self.detail(&mut digits);
        let text = [start, wait, end, "\n"].concat();
        self.into_response(TEXT_PLAIN, text)
    }
}

/// Returns the outcomes that denied the check.
pub(super) fn violations<'a>(denied: &'a Denied<'_>) -> impl Iterator<Item = Outcome<'a>> {
    let live = denied.outcomes().filter(|outcome| outcome.charge().is_live());
    live.filter(|outcome| outcome.verdict() != Verdict::Passed)
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Forbids caches to store a response.
///
/// RFC 6585, section 4, requires this for 429. The other denials hold for a short time as well, and a
/// gRPC status is in a 200 response, which caches may store by default.
pub(super) fn forbid_caching(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, NO_STORE);
}

/// Removes headers that some caches follow instead of `Cache-Control`: `CDN-Cache-Control` and the
/// like (RFC 9213), `Surrogate-Control`, `Edge-Control`, and nginx's `X-Accel-Expires`.
fn remove_targeted_caching(headers: &mut HeaderMap) {
    let targeted = headers.keys().filter(|name| {
        name.as_str().ends_with("-cache-control")
            || ["surrogate-control", "edge-control", "x-accel-expires"].contains(&name.as_str())
    });
    for name in targeted.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
}

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const TEXT_PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The starts of the problem documents, up to `detail`.
const OVER_QUOTA: &str = r##"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":""##;
const OVER_CAPACITY: &str = r##"{"type":"https://docs.rs/plimsoll/latest/plimsoll/#cost-over-capacity","title":"Cost over capacity","status":403,"detail":""##;
const UNAVAILABLE: &str = r##"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503,"detail":""##;
const NO_PEER: &str = r##"{"type":"https://docs.rs/plimsoll/latest/plimsoll/by/struct.ClientIp.html#the-address-of-the-peer","title":"No peer address","status":500,"detail":""##;

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
mod axum {
    use axum::response::{IntoResponse, Response};

    use super::{DenialBody, DenialResponse, Rejection};
    use crate::{decision::Denied, middleware::Headers};

    impl<R: IntoResponse> From<R> for DenialResponse {
        fn from(response: R) -> Self {
            Self(response.into_response().map(DenialBody::boxed))
        }
    }

    /// The response is made by [`Rejection::of`] with [`Headers::default`].
    impl IntoResponse for Denied<'_> {
        fn into_response(self) -> Response {
            Rejection::of(&self, &Headers::default()).to_response().into_response()
        }
    }
}

/// Without the feature `axum`, a closure returns a response or a text.
#[cfg(not(feature = "axum"))]
mod without_axum {
    use bytes::Bytes;
    use http::{Response, header::CONTENT_TYPE};
    use http_body::Body;

    use super::{DenialBody, DenialResponse, TEXT_PLAIN};

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
