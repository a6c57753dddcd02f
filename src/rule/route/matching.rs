//! Closures that match routes.

use std::{panic::Location, sync::Arc};

use http::{
    Method,
    header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN},
    request::Parts,
};

use super::{entry::RouteEntry, names::matched};
use crate::telemetry::RouteWatch;

/// Returns whether a request is for this route: `"POST /login"`, or `"/login"` for any method.
/// `GET` also matches `HEAD`. The [module](super) says which paths and patterns match.
///
/// Pass it to [`Rule::only`](crate::Rule::only) or
/// [`RateLimitLayer::exempt`](crate::RateLimitLayer::exempt). To charge each route another number
/// of units, use [`cost::by_route`](crate::cost::by_route).
///
/// # Examples
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by, route};
///
/// let logins = Policy::new("logins", Quota::per_minute(3))?;
/// let rule = Rule::new(logins, by::peer_ip()).only(route::is("POST /login"));
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule).exempt(route::is("/health"));
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// # Panics
///
/// Panics if `route` has another form, because it would match no request. The method must be in
/// upper case, and the path must begin with a slash and have no query.
#[track_caller]
pub fn is(route: &str) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    matching(RouteEntry::parse(route), "route::is")
}

/// Returns whether a request is for this gRPC method, `"package.Service/Method"`, or for one of the
/// methods of a service, `"package.Service"`.
///
/// It makes no difference how tonic is served: by its own `Server`, or by axum after
/// `Routes::into_axum_router()`. Every HTTP method and content type matches, because tonic does not
/// check the method, and answers gRPC-Web as well.
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by, route};
///
/// let orders = Policy::new("orders", Quota::per_minute(10))?;
/// let rule = Rule::new(orders, by::header("x-api-key")).only(route::grpc("shop.Orders/Place"));
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule)
///     .exempt(route::grpc("grpc.health.v1.Health"));
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// # Panics
///
/// Panics if `method` has another form, because it would match no request.
#[track_caller]
pub fn grpc(method: &str) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    matching(RouteEntry::parse_grpc(method), "route::grpc")
}

#[track_caller]
fn matching(
    entry: RouteEntry,
    used_by: &'static str,
) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    let watch = RouteWatch::new(used_by, Location::caller(), [&*entry.text]);
    let shared = Arc::new((entry, watch));
    move |parts: &Parts| {
        let (entry, watch) = &*shared;
        let is_match = entry.covers(parts) && entry.is_for(parts);
        watch.observe(is_match.then_some(0), || matched(parts));
        is_match
    }
}

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
