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
/// Pass it to [`RateLimitLayer::exempt`](crate::RateLimitLayer::exempt) if preflights reach the rate
/// limit layer. If the CORS layer is outside of the rate limit layer, they do not reach it, and this is
/// the [better order](crate::guide::browsers).
///
/// Every client can send such a request. Exempt preflights only if the service answers them without
/// other work.
///
/// # Examples
///
/// ```
/// use plimsoll::{Limiter, Quota, RateLimitLayer, route};
///
/// let layer = RateLimitLayer::per_ip(Limiter::in_memory(), Quota::per_minute(100))?
///     .exempt(route::is_preflight);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[must_use]
pub fn is_preflight(parts: &Parts) -> bool {
    parts.method == Method::OPTIONS
        && parts.headers.contains_key(ORIGIN)
        && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}
