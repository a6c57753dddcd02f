//! The recognition of CORS preflight requests.

use http::{
    Method,
    header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN},
    request::Parts,
};

/// Returns whether a request is a CORS preflight: `OPTIONS` with `Origin` and
/// `Access-Control-Request-Method` (Fetch, section "HTTP requests"). Browsers send one before a
/// request to another origin.
///
/// Pass it to [`RateLimitLayer::exempt`](crate::RateLimitLayer::exempt) if the layer sees
/// preflights. It does not if the CORS layer is outside of it, which is the
/// [better order](crate::guide::browsers).
///
/// Every client can send such a request. Exempt them only if the service answers them without
/// other work.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, Quota, RateLimitLayer, route};
///
/// let layer = RateLimitLayer::per_ip(Limiter::in_memory(), Quota::per_minute(100))?
///     .exempt(route::is_preflight);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[must_use]
pub fn is_preflight(parts: &Parts) -> bool {
    parts.method == Method::OPTIONS
        && parts.headers.contains_key(ORIGIN)
        && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}
