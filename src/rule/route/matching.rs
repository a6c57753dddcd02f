//! Routes, written as text, and closures that match them.

use std::sync::Arc;

use http::{
    Method,
    header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN},
    request::Parts,
};

use super::{
    form,
    names::{Names, RequestName, matched},
    spelling::{self, normal},
};
use crate::{
    error::Error,
    telemetry::{FirstRequests, WatchedRoute},
};

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
/// Panics if `route` would match no request, with the message of [`validate`]. The method must be in upper
/// case, and the path must be one that `Router::route` of axum accepts, without a query.
#[track_caller]
pub fn is(route: &str) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    matching(RouteEntry::parse(route))
}

/// Checks that a route has a form that [`is`] accepts: for routes that the program reads from a file.
///
/// ```
/// use plimsoll::route;
///
/// assert!(route::validate("GET /users/{id}").is_ok());
/// let error = route::validate("GET /users/:id").unwrap_err();
/// assert!(error.to_string().contains("did you mean \"GET /users/{id}\"?"));
/// ```
///
/// # Errors
///
/// Returns an error of the kind [`Invalid`](crate::error::ErrorKind::Invalid) if the route would match no request. It
/// says what is allowed.
pub fn validate(route: &str) -> Result<(), Error> {
    form::parse(route).map(drop)
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
    matching(RouteEntry::parse_grpc(method))
}

fn matching(entry: RouteEntry) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    let shared = Arc::new((entry, FirstRequests::default()));
    move |parts: &Parts| {
        let (entry, requests) = &*shared;
        let is_match = entry.covers(parts) && entry.is_for(parts);
        requests.watch(is_match.then_some(&entry.route), [&entry.route], matched(parts));
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

/// A route: a method, if it names one, and a path or a pattern.
#[derive(Debug)]
pub(in crate::rule) struct RouteEntry {
    pub(in crate::rule) route: WatchedRoute,
    pub(in crate::rule) method: Option<Method>,
    pub(in crate::rule) path: Box<str>,
    /// True if the path has a parameter, so that it is compared only with routes.
    pub(in crate::rule) is_pattern: bool,
    /// True if all paths that begin with this one match.
    is_prefix: bool,
    normal: Box<[u8]>,
    /// True if the path is its own normal form.
    is_normal: bool,
}

impl RouteEntry {
    /// Parses `"POST /login"`, or `"/login"` for any method.
    ///
    /// # Panics
    ///
    /// Panics if the text has another form, because a limit that applies to no request is a mistake.
    #[track_caller]
    pub(in crate::rule) fn parse(text: &str) -> Self {
        match form::parse(text) {
            Ok((method, path)) => Self::new(text, method, path.to_owned(), false),
            Err(error) => panic!("{error}"),
        }
    }

    /// Parses `"package.Service/Method"` or `"package.Service"`.
    ///
    /// # Panics
    ///
    /// Panics if the text has another form.
    #[track_caller]
    pub(in crate::rule) fn parse_grpc(text: &str) -> Self {
        let (service, method) =
            text.split_once('/').map_or((text, None), |(service, method)| (service, Some(method)));
        assert!(
            service.split('.').all(is_identifier) && method.is_none_or(is_identifier),
            "the gRPC method is {text:?}, allowed is \"package.Service/Method\" or \
             \"package.Service\""
        );
        match method {
            Some(_) => Self::new(text, None, format!("/{text}"), false),
            None => Self::new(text, None, format!("/{text}/"), true),
        }
    }

    #[track_caller]
    fn new(text: &str, method: Option<Method>, path: String, is_prefix: bool) -> Self {
        let normal = normal(&path);
        let in_full = if is_prefix { path.trim_end_matches('/') } else { &*path };
        Self {
            route: WatchedRoute::new(text),
            method,
            is_pattern: path.contains(['{', '}']),
            is_prefix,
            is_normal: normal == in_full.as_bytes(),
            normal: normal.into(),
            path: path.into(),
        }
    }

    /// Returns whether the method matches. GET matches HEAD, because servers answer HEAD with the
    /// handler of GET.
    pub(in crate::rule) fn covers(&self, parts: &Parts) -> bool {
        self.method.as_ref().is_none_or(|method| {
            parts.method == *method || (*method == Method::GET && parts.method == Method::HEAD)
        })
    }

    /// Returns whether the path matches one of the names of a request, or another spelling of one.
    pub(in crate::rule) fn is_for(&self, parts: &Parts) -> bool {
        let names = Names::of(parts);
        if names.each().any(|name| self.is(name)) {
            // `/shop.Orders/../Users` begins with a service, but a proxy may send it to another one.
            !self.is_prefix || !spelling::is_exact(parts)
        } else {
            self.is_respelled(&names) && !spelling::is_exact(parts)
        }
    }

    /// Returns whether the path matches a name.
    pub(in crate::rule) fn is(&self, name: RequestName<'_>) -> bool {
        // A client may write `{id}` into its path.
        let is_comparable = !(name.is_path && self.is_pattern);
        let is_same = if self.is_prefix {
            name.text.starts_with(&*self.path)
        } else {
            *name.text == *self.path
        };
        is_comparable && is_same
    }

    /// Returns whether the path of the request is another spelling of this path, which may reach the same
    /// handler.
    pub(in crate::rule) fn is_respelled(&self, names: &Names<'_>) -> bool {
        // Most paths are their own normal form, and then nothing is allocated.
        !self.is_pattern
            && names.has_spellings()
            && names.paths_for(&self.path).any(|path| {
                (!self.is_normal || !spelling::is_normal(path))
                    && spelling::may_reach(path, &self.normal, self.is_prefix)
            })
    }
}

/// Returns whether the text is an identifier of a file of Protocol Buffers.
fn is_identifier(name: &str) -> bool {
    name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
