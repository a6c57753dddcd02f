//! The paths and routes by which a request is known.

use http::request::Parts;

/// Returns the path of a request as the client has requested it. Inside of a nested router of axum,
/// `parts.uri` lacks the prefix of that router, and this path has it.
///
/// The path is not normalized. Do not exempt requests by the beginning of their path: a client may
/// request `/assets/../search`, and a proxy or a service behind this one may take it for `/search`.
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by, route};
///
/// let rule = Rule::new(Policy::new("api", Quota::per_minute(60))?, by::peer_ip());
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule)
///     .exempt(|parts| ["/api/live", "/api/ready"].contains(&route::path(parts)));
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[must_use]
pub fn path(parts: &Parts) -> &str {
    requested(parts).unwrap_or_else(|| parts.uri.path())
}

/// The names of a request. See the [module](super).
pub(in crate::rule) struct Names<'p> {
    /// The path that the client has requested, unless a text that equals it may mean another one.
    path: Option<&'p str>,
    /// The path that the inner service receives, if it is another one.
    inner_path: Option<&'p str>,
    /// The route that axum has matched.
    pub(in crate::rule) pattern: Option<&'p str>,
    /// The route without the prefix of the nested router, inside of one.
    inner_pattern: Option<&'p str>,
    /// The prefix of the nested router, and the path that the inner service receives.
    nested: Option<(&'p str, &'p str)>,
}

/// One of the names of a request.
#[derive(Clone, Copy)]
pub(in crate::rule) struct RequestName<'p> {
    pub(in crate::rule) text: &'p str,
    /// True for a path, which the client has written.
    pub(in crate::rule) is_path: bool,
}

impl<'p> Names<'p> {
    pub(in crate::rule) fn of(parts: &'p Parts) -> Self {
        let path = path(parts);
        let inner_path = parts.uri.path();
        let pattern = matched(parts);
        let Some(prefix) = nested(parts) else {
            let inner_path = (path != inner_path).then_some(inner_path);
            return Self {
                path: Some(path),
                inner_path,
                pattern,
                inner_pattern: None,
                nested: None,
            };
        };
        // A text that begins with the prefix is a whole name, and every other text is an inner name.
        // Otherwise, a client could choose a parameter so that a name of one kind equals a text that
        // is meant as the other: under `/{tenant}`, the tenant `a` would request `/b` as `/a/b`.
        let inner_pattern = pattern.and_then(|it| without_prefix(it, prefix));
        Self {
            path: (!prefix.contains('{')).then_some(path),
            inner_path: without_prefix(inner_path, prefix).is_none().then_some(inner_path),
            pattern,
            inner_pattern: inner_pattern.filter(|it| without_prefix(it, prefix).is_none()),
            nested: Some((prefix, inner_path)),
        }
    }

    /// Returns the names, the most specific one first.
    pub(in crate::rule) fn each(&self) -> impl Iterator<Item = RequestName<'p>> {
        let names = [self.path, self.inner_path, self.pattern, self.inner_pattern];
        let names = names.into_iter().enumerate();
        names.filter_map(|(index, text)| Some(RequestName { text: text?, is_path: index < 2 }))
    }

    /// Returns the paths with which the spellings of a text are compared. Inside of a nested router, the
    /// text alone decides which one it is: the path `/api/../login` without the prefix begins with the
    /// prefix, and its normal form does not.
    pub(in crate::rule) fn paths_for(&self, text: &str) -> impl Iterator<Item = &'p str> {
        let paths = match self.nested {
            Some((prefix, _)) if without_prefix(text, prefix).is_some() => [self.path, None],
            Some((_, inner_path)) => [Some(inner_path), None],
            None => [self.path, self.inner_path],
        };
        paths.into_iter().flatten()
    }

    /// Returns whether another spelling of the path may reach the same handler. This is the case if axum
    /// has matched no route yet, or a route with a parameter.
    pub(in crate::rule) fn has_spellings(&self) -> bool {
        self.pattern.is_none_or(|pattern| pattern.contains('{'))
    }
}

/// Removes the prefix of a nested router from a name, if the name begins with it.
fn without_prefix<'p>(name: &'p str, prefix: &str) -> Option<&'p str> {
    match name.strip_prefix(prefix.trim_end_matches('/'))? {
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
