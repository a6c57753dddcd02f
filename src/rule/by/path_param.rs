//! A parameter of the path as the key.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::extract::{FromRequestParts, RawPathParams};
use http::{Request, request::Parts};

use crate::{
    key::{Identity, Key},
    rule::route,
};

/// Charges the parameter `name` of the route that axum has matched: the `id` of `/users/{id}`, the
/// `name` of `/user_{name}`, or the `path` of `/files/{*path}`. These are axum's own parameters,
/// those of nested routers included. The value is percent-decoded, as handlers see it.
///
/// A request is [`Identity::Unknown`] in these cases:
///
/// - Its route has no such parameter.
/// - No route is matched yet, as in a layer around the whole `Router`. Use `Router::layer` or
///   `Router::route_layer`.
/// - One of its parameters is not UTF-8 after decoding. Extractors such as `Path` reject such a
///   request.
///
/// The client writes the path, and so chooses the key: see the warning at
/// [`header`](super::header). A name is charged as it is written: see [`Key::from_name`].
///
/// axum's extractor of parameters needs a request head that it can change, so this extractor clones the
/// extensions of each request.
pub fn path_param(
    name: &'static str,
) -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    move |parts: &Parts| {
        let params = of_axum(parts);
        let values = params.iter().flatten();
        // If an inner router has a parameter of the same name, its handlers see the inner value.
        let value = values.filter(|(found, _)| *found == name).last();
        Identity::from(value.map(|(_, value)| Key::from(value)))
    }
}

/// Returns the parameters that axum has inserted into the extensions, under a type that only this
/// extractor can name. The extractor never waits.
fn of_axum(parts: &Parts) -> Option<RawPathParams> {
    let (mut owned, ()) = Request::new(()).into_parts();
    owned.extensions = parts.extensions.clone();
    let extracted = pin!(RawPathParams::from_request_parts(&mut owned, &()));
    match extracted.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(params) => params.ok(),
        Poll::Pending => None,
    }
}

/// Charges the pattern of the route that axum has matched, such as `/users/{id}`. All clients share
/// one budget for each route. To give each client a budget of its own, join the client with
/// [`And`](super::And).
///
/// Requests that matched no route are [`Identity::Unknown`]. Use `Router::layer` or
/// `Router::route_layer`: a layer around the whole `Router` runs before a route is matched.
pub fn matched_route() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    |parts: &Parts| Identity::from(route::matched(parts).map(Key::from))
}
