//! Headers that keep denials out of caches.

use http::{HeaderMap, HeaderName, HeaderValue, header::CACHE_CONTROL};

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Forbids caches to store a response.
///
/// RFC 6585, section 4, requires this for 429. The other denials hold for a short time as well, and a
/// gRPC status is in a 200 response, which caches may store by default.
pub(super) fn forbid(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, NO_STORE);
}

/// Removes headers that some caches follow instead of `Cache-Control`: `CDN-Cache-Control` and the
/// like (RFC 9213), `Surrogate-Control`, `Edge-Control`, and nginx's `X-Accel-Expires`.
pub(super) fn remove_targeted(headers: &mut HeaderMap) {
    let is_targeted = |name: &&HeaderName| {
        name.as_str().ends_with("-cache-control")
            || ["surrogate-control", "edge-control", "x-accel-expires"].contains(&name.as_str())
    };
    let targeted: Vec<_> = headers.keys().filter(is_targeted).cloned().collect();
    for name in targeted {
        headers.remove(name);
    }
}
