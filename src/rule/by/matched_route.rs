//! The route as the key.

use http::request::Parts;

use crate::{
    key::{Identity, Key},
    rule::route,
};

/// Charges the pattern of the route that axum has matched, such as `/users/{id}`. All clients share
/// one budget for each route. To give each client a budget of its own, join the client with
/// [`And`](super::And).
///
/// Requests that matched no route are [`Identity::Unknown`]. Use `Router::layer` or
/// `Router::route_layer`: a layer around the whole `Router` runs before a route is matched.
pub fn matched_route() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    |parts: &Parts| Identity::from(route::matched(parts).map(Key::from))
}
