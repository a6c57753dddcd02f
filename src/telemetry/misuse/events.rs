//! The events of misuse.

use std::panic::Location;

use crate::telemetry::macros::reports;

reports! { feature "tracing";
    /// Reports that a route has matched none of the first requests.
    pub(super) fn route_unmatched(
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

    /// Reports that a request was charged twice to the same key under one policy.
    pub(crate) fn charged_twice(policy: &str) {
        tracing::warn!(
            target: "plimsoll::misuse",
            policy,
            "two rules or two layers charge a request to the same key under the same policy of the same \
             limiter: remove one of them, or give each limit a policy with a name of its own"
        );
    }

    /// Reports that almost all of the first charges under a policy had keys that were not charged before.
    pub(crate) fn every_key_is_new(policy: &str, charges: u32) {
        tracing::warn!(
            target: "plimsoll::misuse",
            policy, charges,
            "almost every charge had a key that was not charged before: if clients choose this key, \
             they can invent keys and are not limited. Charge what an outer layer has verified, or add \
             a rule for the address of the client"
        );
    }
}
