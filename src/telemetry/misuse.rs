//! Warnings of misuse: configurations that work, but probably not as intended.
//!
//! Each check looks at the first requests only, and emits at most one event at level `WARN` with the
//! target `plimsoll::misuse`. After these requests, it costs one relaxed load of an atomic.

use std::{
    panic::Location,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use crate::telemetry::macros::reports;

/// A counter of the first requests, shared by the clones of a layer or of an extractor.
#[derive(Debug, Default)]
pub(crate) struct FirstRequests(AtomicU32);

impl FirstRequests {
    /// The number of requests in which misuse is looked for.
    pub(crate) const COUNT: u32 = 1_000;

    /// Returns whether misuse is still looked for: never, if there are no events. It reads one atomic.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        cfg!(feature = "tracing") && self.0.load(Relaxed) < Self::COUNT
    }

    /// Counts a request. Returns its number, beginning with 1.
    pub(crate) fn count(&self) -> u32 {
        self.0.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// Ends the search.
    pub(crate) fn end(&self) {
        self.0.store(Self::COUNT, Relaxed);
    }
}

/// The number of routes that a warning lists as those that were seen.
const MAX_SEEN: usize = 5;

/// The routes of one rule. Each route should match one of the [`FirstRequests`] that it is compared with.
/// When all routes have matched, the search ends at once.
#[derive(Debug)]
pub(crate) struct RouteWatch {
    requests: FirstRequests,
    used_by: &'static str,
    at: &'static Location<'static>,
    routes: Box<[WatchedRoute]>,
    /// Routes that axum has matched, never paths of clients.
    seen: Mutex<Vec<Box<str>>>,
}

#[derive(Debug)]
struct WatchedRoute {
    text: Box<str>,
    has_matched: AtomicBool,
}

impl RouteWatch {
    /// Creates a watch over the routes with which the program called the function `used_by` at one place.
    pub(crate) fn new<'t>(
        used_by: &'static str,
        at: &'static Location<'static>,
        routes: impl IntoIterator<Item = &'t str>,
    ) -> Self {
        let watched = |text: &str| WatchedRoute { text: text.into(), has_matched: false.into() };
        let routes: Box<[_]> = routes.into_iter().map(watched).collect();
        let requests = FirstRequests::default();
        if routes.is_empty() {
            requests.end();
        }
        Self { requests, used_by, at, routes, seen: Mutex::default() }
    }

    /// Records the index of the watched route that a request has matched, if any, and the route that
    /// axum has matched.
    #[inline]
    pub(crate) fn observe<'p>(
        &self,
        matched: Option<usize>,
        seen: impl FnOnce() -> Option<&'p str>,
    ) {
        if self.requests.is_active() {
            self.record(matched, seen());
        }
    }

    #[cold]
    fn record(&self, matched: Option<usize>, seen: Option<&str>) {
        if let Some(route) = matched.and_then(|index| self.routes.get(index)) {
            route.has_matched.store(true, Relaxed);
            if self.unmatched().next().is_none() {
                return self.requests.end();
            }
        }
        // If another request holds the lock, this route is not listed, so that no request waits.
        if let (Some(seen), Ok(mut all)) = (seen, self.seen.try_lock())
            && all.len() < MAX_SEEN
            && !all.iter().any(|other| **other == *seen)
        {
            all.push(seen.into());
        }
        if self.requests.count() == FirstRequests::COUNT {
            self.warn();
        }
    }

    fn warn(&self) {
        let seen = self.seen.lock().map(|mut seen| seen.split_off(0)).unwrap_or_default();
        let seen = match &*seen {
            [] => "none, because no route was matched before this layer".to_owned(),
            seen => seen.join(", "),
        };
        for route in self.unmatched() {
            let requests = FirstRequests::COUNT;
            route_unmatched(&route.text, self.used_by, self.at, requests, &seen);
        }
    }

    fn unmatched(&self) -> impl Iterator<Item = &WatchedRoute> {
        self.routes.iter().filter(|route| !route.has_matched.load(Relaxed))
    }
}

reports! { feature "tracing";
    /// Reports that a route has matched none of the first requests.
    fn route_unmatched(
        route: &str,
        used_by: &str,
        at: &Location<'_>,
        requests: u32,
        seen: &str
    ) {
        tracing::warn!(
            target: "plimsoll::misuse",
            route, used_by, %at, requests, seen,
            "a route has matched none of the first requests: unless it is rare, compare it with the \
             routes that were seen, which begin with the prefixes of nested routers"
        );
    }

    /// Reports that requests carry no peer address, once in the lifetime of the process.
    pub(crate) fn peer_missing() {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            tracing::warn!(
                target: "plimsoll::misuse",
                "requests carry no peer address: rules that charge it reject them with status 500, \
                 shadow rules do not count them. Serve axum with \
                 `app.into_make_service_with_connect_info::<SocketAddr>()`, enable plimsoll's \
                 feature `tonic` under tonic, or say where it is with `ClientIp::peer_from`"
            );
        });
    }

    /// Reports that a request names its client in a header that a `ClientIp` does not read,
    /// once in the lifetime of the process.
    pub(crate) fn forwarded_ignored(header: &str) {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            tracing::warn!(
                target: "plimsoll::misuse",
                header,
                "a request has a header of a proxy, but the address of the connection is used: if \
                 the service is behind a proxy, all its clients are one. Use `by::client_ip`, and \
                 name the proxies"
            );
        });
    }

    /// Reports that two rules or two layers charged a request to the same key under one policy.
    pub(crate) fn charged_twice(policy: &str) {
        tracing::warn!(
            target: "plimsoll::misuse",
            policy,
            "two rules or two layers charge a request to the same key under the same policy of the same \
             limiter: remove one of them, or give each limit a policy with a name of its own"
        );
    }
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_with_the_last_match_or_after_the_first_requests() {
        let watch = |routes: &[&'static str]| {
            RouteWatch::new("test", Location::caller(), routes.iter().copied())
        };
        let found = watch(&["/a", "/b"]);
        found.observe(Some(0), || None);
        assert!(found.requests.is_active(), "one is missing");
        found.observe(Some(1), || None);
        assert!(!found.requests.is_active());
        let missing = watch(&["/a"]);
        for number in 0..FirstRequests::COUNT {
            assert!(missing.requests.is_active(), "{number}");
            let seen = format!("/{number}");
            missing.observe(None, || Some(&seen));
            assert!(missing.seen.lock().unwrap().len() <= MAX_SEEN);
        }
        assert!(!missing.requests.is_active());
        assert!(missing.seen.lock().unwrap().is_empty(), "what was seen is not kept");
        assert!(!watch(&[]).requests.is_active());
    }
}
