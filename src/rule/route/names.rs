//! The paths and routes by which a request is known.

use http::request::Parts;

use super::spelling;

/// Returns the path of a request as the client has requested it. Inside of a nested router of axum,
/// `parts.uri` lacks the prefix of that router, and this path has it.
///
/// The path is not normalized. Do not exempt requests by the beginning of their path: a client may
/// request `/assets/../search`, and a proxy or a service behind this one may take it for `/search`.
///
/// ```
/// use tollgate::{Limiter, Policy, Quota, RateLimitLayer, Rule, by, route};
///
/// let rule = Rule::new(Policy::new("api", Quota::per_minute(60))?, by::peer_ip());
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule)
///     .exempt(|parts| ["/api/live", "/api/ready"].contains(&route::path(parts)));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[must_use]
pub fn path(parts: &Parts) -> &str {
    requested(parts).unwrap_or_else(|| parts.uri.path())
}

/// The names of a request. See the [module](super).
pub(super) struct Names<'p> {
    /// The path that the client has requested.
    pub(super) path: &'p str,
    /// The path that the inner service receives.
    pub(super) inner_path: &'p str,
    /// The route that axum has matched.
    pub(super) pattern: Option<&'p str>,
    /// The route without the prefix of the nested router, inside of one.
    pub(super) inner_pattern: Option<&'p str>,
}

impl<'p> Names<'p> {
    #[inline]
    pub(super) fn of(parts: &'p Parts) -> Self {
        let (path, inner_path) = (path(parts), parts.uri.path());
        let pattern = matched(parts);
        let mut names = Self { path, inner_path, pattern, inner_pattern: None };
        if names.is_nested() {
            names.inner_pattern = pattern.and_then(|pattern| without_prefix(pattern, parts));
        }
        names
    }

    /// Returns whether the inner service receives another path than the client has requested, as inside of
    /// a nested router.
    pub(super) fn is_nested(&self) -> bool {
        self.path != self.inner_path
    }

    /// Returns whether the path can be written in another way, which may reach the same handler.
    pub(super) fn may_be_respelled(&self) -> bool {
        self.has_spellings() && spelling::has_another(self.path, self.inner_path)
    }

    /// Returns whether another spelling of the path may reach the same handler. This is the case if axum
    /// has matched no route yet, or a route with a parameter.
    pub(super) fn has_spellings(&self) -> bool {
        self.pattern.is_none_or(|pattern| pattern.contains('{'))
    }
}

/// Removes the prefix of the nested router from a route.
fn without_prefix<'p>(pattern: &'p str, parts: &Parts) -> Option<&'p str> {
    let inner = pattern.strip_prefix(nested(parts)?.trim_end_matches('/'))?;
    match inner {
        // axum writes the route `/` of a router under `/api` as `/api`.
        "" => Some("/"),
        inner => inner.starts_with('/').then_some(inner),
    }
}

/// Returns the route that axum has matched, such as `/users/{id}`.
#[cfg(feature = "axum")]
pub(crate) fn matched(parts: &Parts) -> Option<&str> {
    Some(parts.extensions.get::<axum::extract::MatchedPath>()?.as_str())
}

/// Returns the path of the request that axum has received.
#[cfg(feature = "axum")]
fn requested(parts: &Parts) -> Option<&str> {
    Some(parts.extensions.get::<axum::extract::OriginalUri>()?.path())
}

/// Returns the prefix of the nested router.
#[cfg(feature = "axum")]
fn nested(parts: &Parts) -> Option<&str> {
    Some(parts.extensions.get::<axum::extract::NestedPath>()?.as_str())
}

/// Returns `None`: without the feature `axum`, no route is known.
#[cfg(not(feature = "axum"))]
pub(crate) fn matched(_: &Parts) -> Option<&str> {
    None
}

/// Returns `None`: without the feature `axum`, only the path of the URI is known.
#[cfg(not(feature = "axum"))]
fn requested(_: &Parts) -> Option<&str> {
    None
}

/// Returns `None`: without the feature `axum`, no nested router is known.
#[cfg(not(feature = "axum"))]
fn nested(_: &Parts) -> Option<&str> {
    None
}
