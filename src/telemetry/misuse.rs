//! Warnings of misuse: configurations that work, but probably not as intended.
//!
//! Each check looks at the first requests only, and emits at most one event at level `WARN` with the
//! target `plimsoll::misuse`. After these requests, it costs one relaxed load of an atomic.

use std::{
    panic::Location,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

use crate::telemetry::macros::reports;

/// A counter of the first requests, shared by the clones of a layer or of an extractor.
#[derive(Debug, Default)]
pub(crate) struct FirstRequests(AtomicU32);

impl FirstRequests {
    /// The number of requests in which misuse is looked for.
    pub(crate) const COUNT: u32 = 1_000;

    /// Counts a request. Returns its number, beginning with 1, or `None` if misuse is no longer looked for: it never
    /// is, if there are no events. Then it reads one atomic.
    pub(crate) fn count(&self) -> Option<u32> {
        let is_active = cfg!(feature = "tracing") && self.0.load(Relaxed) < Self::COUNT;
        is_active.then(|| self.0.fetch_add(1, Relaxed).saturating_add(1))
    }

    /// Ends the search.
    pub(crate) fn end(&self) {
        self.0.store(Self::COUNT, Relaxed);
    }

    /// Records the route of `all` that a request has matched, if any. The last of the first requests reports the routes
    /// that none has matched. `seen` is the route that axum has matched, never the path of a client.
    pub(crate) fn watch<'r>(
        &self,
        matched: Option<&WatchedRoute>,
        all: impl IntoIterator<Item = &'r WatchedRoute>,
        seen: Option<&str>,
    ) {
        let Some(number) = self.count() else { return };
        if let Some(matched) = matched {
            matched.has_matched.store(true, Relaxed);
        }
        if number == Self::COUNT {
            let seen = seen.unwrap_or("none: no route is matched before this layer");
            let unmatched = all.into_iter().filter(|route| !route.has_matched.load(Relaxed));
            unmatched.for_each(|route| route_unmatched(route, seen));
        }
    }
}

/// A route that the program has passed to a function at one place of its code. It should match one of the [`FirstRequests`] that are
/// compared with it.
#[derive(Debug)]
pub(crate) struct WatchedRoute {
    /// The text as the application wrote it.
    pub(crate) text: Box<str>,
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "a warning has the place"))]
    at: &'static Location<'static>,
    has_matched: AtomicBool,
}

impl WatchedRoute {
    #[track_caller]
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.into(), at: Location::caller(), has_matched: false.into() }
    }
}

reports! { feature "tracing";
    /// Reports that a route has matched none of the first requests.
    fn route_unmatched(route: &WatchedRoute, seen: &str) {
        tracing::warn!(
            target: "plimsoll::misuse",
            route = &*route.text, at = %route.at, requests = FirstRequests::COUNT, seen,
            "a route has matched none of the first requests: unless it is rare, compare it with the \
             route of the last of them, which begins with the prefixes of nested routers"
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
