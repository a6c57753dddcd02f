//! Which route a request is for: for rules that count one route only.
//!
//! Where axum has matched a route that is its pattern, such as `/users/{id}`, with what it is nested
//! under: `/api/users/{id}`. Elsewhere, as in a layer around the whole `Router`, it is the path of
//! the URI as the client has written it, which may spell one route in several ways.

use http::{Method, request::Parts};

/// Whether a request is for this route: `"POST /login"`, or `"/login"` for any method; `GET`
/// covers `HEAD`. See [`Rule::only`](crate::Rule::only).
///
/// # Panics
///
/// If it has not this form, and would match no request: the method is in upper case, the path
/// begins with a slash.
pub fn is(route: &str) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    let (method, pattern) = split(route);
    let (method, pattern) = (method.map(str::to_owned), pattern.to_owned());
    move |parts: &Parts| {
        let method = method.as_deref();
        method.is_none_or(|method| covers(method, parts)) && self::pattern(parts) == pattern
    }
}

/// Servers answer HEAD by the handler of GET: what GET costs cannot be had for less.
pub(crate) fn covers(method: &str, parts: &Parts) -> bool {
    parts.method == *method || (method == "GET" && parts.method == Method::HEAD)
}

/// `"POST /login"` in its two parts.
///
/// # Panics
///
/// If it has not this form: a limit that applies to nothing is a mistake.
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

/// The pattern of the route, or where there is none the path of the URI.
pub(crate) fn pattern(parts: &Parts) -> &str {
    matched(parts).unwrap_or_else(|| parts.uri.path())
}

/// The pattern of the route, such as `/users/{id}`, if axum has matched one.
#[cfg(feature = "axum")]
pub(crate) fn matched(parts: &Parts) -> Option<&str> {
    Some(parts.extensions.get::<axum::extract::MatchedPath>()?.as_str())
}

/// The pattern of the route: nobody knows it.
#[cfg(not(feature = "axum"))]
pub(crate) fn matched(_: &Parts) -> Option<&str> {
    None
}
