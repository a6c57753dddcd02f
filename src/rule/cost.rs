//! Costs of requests, for [`Rule::cost`](crate::Rule::cost).
//!
//! Each function returns a closure over the head of a request, as an application could write it.

use std::sync::Arc;

use http::{
    HeaderValue, Method, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
    request::Parts,
};

use crate::{
    rule::route::{Names, RouteEntry, has_other_spelling},
    telemetry::FirstRequests,
};

/// Returns the cost of the body of a request by its `Content-Length`: its length in bytes divided
/// by `bytes`, rounded up, in units.
///
/// - A request without a body costs 0.
/// - A body without a length, or with a length beside `Transfer-Encoding`, costs `unstated` units.
/// - In HTTP/2 and later, a request without a length costs `unstated` units, because nothing shows
///   whether a body follows.
///
/// Pass it to [`Rule::cost`](crate::Rule::cost).
///
/// # Examples
///
/// ```
/// use plimsoll::{Policy, Quota, Rule, by, cost};
///
/// let upload = Policy::new("upload", Quota::per_hour(1_000))?.with_unit("kib")?;
/// let rule = Rule::new(upload, by::header("x-api-key")).cost(cost::content_length(1_024, 100));
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// # Panics
///
/// Panics if `bytes` is 0.
pub fn content_length(
    bytes: u64,
    unstated: u64,
) -> impl Fn(&Parts) -> u64 + Clone + Send + Sync + 'static {
    assert!(bytes > 0, "a unit of 0 bytes: allowed is 1 and more");
    move |parts: &Parts| {
        let mut lengths = parts.headers.get_all(CONTENT_LENGTH).iter();
        let encoded = parts.headers.contains_key(TRANSFER_ENCODING);
        match (lengths.next(), lengths.next()) {
            (None, _) if !encoded && parts.version <= Version::HTTP_11 => 0,
            (Some(length), None) if !encoded => {
                parse_length(length).map_or(unstated, |length| length.div_ceil(bytes))
            }
            _ => unstated,
        }
    }
}

/// Returns the cost of the route of a request in units, or the units that `otherwise` returns if no entry matches it.
/// An entry is `"POST /login"`, or `"/login"` for any method, as in [`route::is`](crate::route::is). The module
/// [`route`](mod@crate::route) says which paths and patterns match.
/// If several entries match, a path takes precedence over a pattern, and an entry with a method over an entry
/// without.
///
/// # Panics
///
/// Panics if an entry has another form or is there twice, because it would match no request.
///
/// # Examples
///
/// All other requests cost 1 unit, or by their method:
///
/// ```
/// use http::Method;
/// use plimsoll::cost;
///
/// let cost = cost::by_route([("/search", 10), ("POST /reports/{year}", 100)], |_| 1);
///
/// let by_method = |parts: &http::request::Parts| if parts.method == Method::GET { 1 } else { 5 };
/// let cost = cost::by_route([("/search", 10)], by_method);
/// ```
#[track_caller]
pub fn by_route<'r, F>(
    costs: impl IntoIterator<Item = (&'r str, u64)>,
    otherwise: F,
) -> impl Fn(&Parts) -> u64 + Clone + Send + Sync + 'static
where
    F: Fn(&Parts) -> u64 + Send + Sync + 'static,
{
    let costs = Arc::new(Costs::new(costs, otherwise));
    move |parts: &Parts| costs.of(parts)
}

/// Parses a `Content-Length`, which is digits only (RFC 9110, section 8.6). `parse` alone would
/// accept a plus sign.
pub(crate) fn parse_length(value: &HeaderValue) -> Option<u64> {
    let digits = value.to_str().ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The costs of routes in units.
struct Costs<F> {
    /// Entries with a method come first, because they take precedence over an entry for any method, and an entry for
    /// HEAD over one for GET.
    entries: Vec<(RouteEntry, u64)>,
    otherwise: F,
    requests: FirstRequests,
}

impl<F: Fn(&Parts) -> u64> Costs<F> {
    #[track_caller]
    fn new<'r>(costs: impl IntoIterator<Item = (&'r str, u64)>, otherwise: F) -> Self {
        // A closure would not pass on the location of the caller, so this is a loop.
        let mut entries = Vec::new();
        for (text, cost) in costs {
            let entry = RouteEntry::parse(text);
            let is_new = entries.iter().all(|(it, _): &(RouteEntry, u64)| *it.route.text != *text);
            assert!(
                is_new,
                "the route {text:?} is there twice, allowed is one cost for each route"
            );
            entries.push((entry, cost));
        }
        // An entry for GET also matches HEAD.
        entries.sort_by_key(|(entry, _)| match &entry.method {
            None => 2,
            Some(method) => u8::from(*method == Method::GET),
        });
        Self { entries, otherwise, requests: FirstRequests::default() }
    }

    /// Returns the cost of a request.
    fn of(&self, parts: &Parts) -> u64 {
        let names = Names::of(parts);
        // The most specific name decides: its path, then its route.
        let found = names.each().find_map(|name| {
            self.entries.iter().find(|(entry, _)| entry.covers(parts) && entry.is(name))
        });
        let all = self.entries.iter().map(|(entry, _)| &entry.route);
        self.requests.watch(found.map(|(entry, _)| &entry.route), all, names.pattern);
        let cost = found.map_or_else(|| (self.otherwise)(parts), |(_, cost)| *cost);
        let may_be_respelled = names.has_spellings() && has_other_spelling(parts);
        if may_be_respelled { self.respelled(cost, &names, parts) } else { cost }
    }

    /// Returns the cost of a request whose path has another spelling: at least `cost`, so that a
    /// client cannot choose a lower one.
    fn respelled(&self, cost: u64, names: &Names<'_>, parts: &Parts) -> u64 {
        let others =
            self.entries.iter().filter(|(it, _)| it.covers(parts) && it.is_respelled(names));
        others.map(|(_, cost)| *cost).fold(cost, u64::max)
    }
}
