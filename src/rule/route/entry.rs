//! One route, written as text.

use http::{Method, request::Parts};

use super::{
    names::{Names, RequestName},
    spelling::{self, normal},
};

/// A route: a method, if it names one, and a path or a pattern.
#[derive(Debug)]
pub(super) struct RouteEntry {
    /// The text as the application wrote it.
    pub(super) text: Box<str>,
    pub(super) method: Option<Method>,
    pub(super) path: Box<str>,
    /// True if the path has a parameter, so that it is compared only with routes.
    pub(super) is_pattern: bool,
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
    pub(super) fn parse(text: &str) -> Self {
        let (method, path) =
            text.split_once(' ').map_or((None, text), |(method, path)| (Some(method), path));
        let upper = |method: &str| !method.bytes().any(|byte| byte.is_ascii_lowercase());
        let parsed = method.filter(|method| upper(method)).map(str::parse::<Method>);
        let in_path = |byte: u8| byte > b' ' && !matches!(byte, b'?' | b'#' | 0x7f);
        assert!(
            method.is_none() == parsed.is_none()
                && parsed.as_ref().is_none_or(Result::is_ok)
                && path.starts_with('/')
                && path.bytes().all(in_path),
            "the route is {text:?}, allowed is \"/path\" or \"METHOD /path\""
        );
        let method = parsed.and_then(Result::ok);
        Self::new(text, method, path.to_owned(), false)
    }

    /// Parses `"package.Service/Method"` or `"package.Service"`.
    ///
    /// # Panics
    ///
    /// Panics if the text has another form.
    #[track_caller]
    pub(super) fn parse_grpc(text: &str) -> Self {
        let (service, method) =
            text.split_once('/').map_or((text, None), |(service, method)| (service, Some(method)));
        let identifier = |name: &str| {
            name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        assert!(
            service.split('.').all(identifier) && method.is_none_or(identifier),
            "the gRPC method is {text:?}, allowed is \"package.Service/Method\" or \
             \"package.Service\""
        );
        match method {
            Some(_) => Self::new(text, None, format!("/{text}"), false),
            None => Self::new(text, None, format!("/{text}/"), true),
        }
    }

    fn new(text: &str, method: Option<Method>, path: String, is_prefix: bool) -> Self {
        let normal = normal(&path);
        let in_full = if is_prefix { path.trim_end_matches('/') } else { &*path };
        let (is_pattern, is_normal) = (path.contains(['{', '}']), normal == in_full.as_bytes());
        let (text, path, normal) = (text.into(), path.into(), normal.into());
        Self { text, method, path, is_pattern, is_prefix, normal, is_normal }
    }

    /// Returns whether the method matches. GET matches HEAD, because servers answer HEAD with the
    /// handler of GET.
    #[inline]
    pub(super) fn covers(&self, parts: &Parts) -> bool {
        self.method.as_ref().is_none_or(|method| {
            parts.method == *method || (*method == Method::GET && parts.method == Method::HEAD)
        })
    }

    /// Returns whether the path matches one of the names of a request, or another spelling of one.
    pub(super) fn is_for(&self, parts: &Parts) -> bool {
        let names = Names::of(parts);
        match names.each().any(|name| self.is(name)) {
            // `/shop.Orders/../Users` begins with a service, but a proxy may send it to another one.
            true => !self.is_prefix || !spelling::is_exact(parts),
            false => self.is_respelled(&names) && !spelling::is_exact(parts),
        }
    }

    /// Returns whether the path matches a name.
    #[inline]
    pub(super) fn is(&self, name: RequestName<'_>) -> bool {
        // A client may write `{id}` into its path.
        let is_comparable = !(name.is_path && self.is_pattern);
        is_comparable
            && match self.is_prefix {
                false => *name.text == *self.path,
                true => name.text.starts_with(&*self.path),
            }
    }

    /// Returns whether the path of the request is another spelling of this path, which may reach the same
    /// handler.
    pub(super) fn is_respelled(&self, names: &Names<'_>) -> bool {
        // Most paths are their own normal form, and then nothing is allocated.
        let is = |path: &str| {
            (!self.is_normal || !spelling::is_normal(path))
                && spelling::may_reach(path, &self.normal, self.is_prefix)
        };
        !self.is_pattern && names.has_spellings() && names.paths_for(&self.path).any(is)
    }
}
