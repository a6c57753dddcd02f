//! The request that `explain` is about, with what a service inserts before the limit.

use std::{
    net::SocketAddr,
    pin::pin,
    sync::mpsc,
    task::{Context, Waker},
};

use axum::{Router, body::Body, routing::any};
use http::{Request, request::Parts};
use plimsoll_control::Claims;
use tower_service::Service;

use crate::{args::Explained, client::Failure};

/// Returns the head of the request as the layer of a service sees it, and the route that it matches: of the arguments,
/// or one of these of the file.
///
/// # Errors
///
/// Returns an error if the route of the arguments does not match.
pub(crate) fn head(
    args: &Explained,
    routes: &[String],
) -> Result<(Parts, Option<String>), Failure> {
    let mut request = Request::new(());
    *request.method_mut() = args.method.clone();
    *request.uri_mut() = args.target.clone();
    for (name, value) in &args.headers {
        request.headers_mut().append(name, value.clone());
    }
    if let Some(address) = args.from {
        request.extensions_mut().insert(SocketAddr::new(address, 0));
    }
    if !args.claims.is_empty() {
        request.extensions_mut().insert(Claims::from_iter(args.claims.clone()));
    }
    let parts = request.into_parts().0;
    let mut paths: Vec<_> = match &args.route {
        Some(route) => vec![route.as_str()],
        None => routes.iter().map(|route| path(route)).collect(),
    };
    // The router of axum prefers a fixed segment to a parameter, and a parameter to the rest of the path.
    paths.sort_by_key(|path| (path.contains("{*"), path.matches('{').count()));
    let matched = paths.into_iter().find_map(|path| Some((matched(&parts, path)?, path)));
    match (matched, &args.route) {
        (Some((parts, route)), _) => Ok((parts, Some(route.to_owned()))),
        (None, Some(route)) => {
            let path = args.target.path();
            Err(Failure::new(&format!("the route {route} does not match the path {path}")))
        }
        (None, None) => Ok((parts, None)),
    }
}

/// Returns the path of a route of the file.
fn path(route: &str) -> &str {
    route.split_once(' ').map_or(route, |(_, path)| path)
}

/// Returns the head as the router of axum passes it to the handler of a route, or `None` if the route does not match.
fn matched(parts: &Parts, route: &str) -> Option<Parts> {
    let (sender, receiver) = mpsc::channel();
    let handler = any(async move |parts: Parts| {
        // The receiver is there.
        let _ = sender.send(parts);
    });
    let mut router = Router::new().route(route, handler);
    let served = pin!(router.call(Request::from_parts(parts.clone(), Body::empty())));
    // The handler waits for nothing.
    let _ = served.poll(&mut Context::from_waker(Waker::noop()));
    receiver.try_recv().ok()
}
