//! The route of a request, for rules that charge one route only.
//!
//! If axum has matched a route, the route of a request is the pattern with the prefixes of nested
//! routers, such as `/api/users/{id}`. Otherwise, as in a layer around the whole `Router`, it is
//! the path of the URI as the client has written it. A client can then write one route in several
//! ways, so use [`is`] in a layer that runs after routing.

use http::{Method, request::Parts};

/// Returns whether a request is for this route: `"POST /login"`, or `"/login"` for any method.
/// `GET` also matches `HEAD`.
///
/// Pass it to [`Rule::only`](crate::Rule::only) or
/// [`RateLimitLayer::exempt`](crate::RateLimitLayer::exempt). To charge each route another number
/// of units, use [`cost::by_route`](crate::cost::by_route).
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, Policy, Quota, RateLimitLayer, Rule, by, route};
///
/// let logins = Policy::new("logins", Quota::per_minute(3))?;
/// let rule = Rule::new(logins, by::peer_ip()).only(route::is("POST /login"));
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule).exempt(route::is("/health"));
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// # Panics
///
/// Panics if `route` has another form, because it would match no request. The method must be in
/// upper case, and the path must begin with a slash.
pub fn is(route: &str) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    let (method, pattern) = split(route);
    let (method, pattern) = (method.map(str::to_owned), pattern.to_owned());
    move |parts: &Parts| {
        let method = method.as_deref();
        method.is_none_or(|method| covers(method, parts)) && self::pattern(parts) == pattern
    }
}

/// Returns whether `method` covers the method of a request. GET covers HEAD, because servers answer
/// HEAD with the handler of GET.
pub(crate) fn covers(method: &str, parts: &Parts) -> bool {
    parts.method == *method || (method == "GET" && parts.method == Method::HEAD)
}

/// Splits `"POST /login"` into its two parts.
///
/// # Panics
///
/// Panics if it has another form, because a limit that applies to no request is a mistake.
pub(crate) fn split(route: &str) -> (Option<&str>, &str) {
    let (method, pattern) =
        route.split_once(' ').map_or((None, route), |(method, pattern)| (Some(method), pattern));
    let upper = method.is_none_or(|method| {
        !method.is_empty() && !method.bytes().any(|byte| byte.is_ascii_lowercase())
    });
    assert!(
        upper && pattern.starts_with('/'),
        "the route is {route:?}, allowed is \"/path\" or \"METHOD /path\""
    );
    (method, pattern)
}

/// Returns the pattern of the route, or else the path of the URI.
pub(crate) fn pattern(parts: &Parts) -> &str {
    matched(parts).unwrap_or_else(|| parts.uri.path())
}

/// Returns the pattern of the route that axum has matched, such as `/users/{id}`.
#[cfg(feature = "axum")]
pub(crate) fn matched(parts: &Parts) -> Option<&str> {
    Some(parts.extensions.get::<axum::extract::MatchedPath>()?.as_str())
}

/// Returns `None`: without the feature `axum`, no pattern is known.
#[cfg(not(feature = "axum"))]
pub(crate) fn matched(_: &Parts) -> Option<&str> {
    None
}
