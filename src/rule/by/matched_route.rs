//! By the route.

use http::request::Parts;

use crate::{
    key::{Identity, Key},
    rule::route,
};

/// The pattern of the route that axum has matched, such as `/users/{id}`: a budget for each route,
/// whoever asks. Join a client with [`And`](super::And).
///
/// Requests that matched no route are [`Identity::Unknown`]. A layer around the whole `Router`,
/// rather than in `Router::layer`, sees requests before they are matched.
pub fn matched_route() -> impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static {
    |parts: &Parts| Identity::from(route::matched(parts).map(Key::from))
}
