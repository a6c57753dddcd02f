//! Clients of the shop, so that the page has something to show.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::Request;
use tokio::time::interval;
use tower::ServiceExt;

/// The customers and what they ask for, again and again. `acme` asks for more than its limits.
const REQUESTS: [(&str, &str); 10] = [
    ("/search", "acme"),
    ("/search", "globex"),
    ("/search", "acme"),
    ("/orders", "initech"),
    ("/search", "acme"),
    ("/search", "globex"),
    ("/search", "acme"),
    ("/orders", "acme"),
    ("/search", "umbrella"),
    ("/search", "acme"),
];

/// Sends requests until the task is aborted.
pub(crate) async fn run(shop: Router) {
    let mut interval = interval(Duration::from_millis(50));
    for (path, customer) in REQUESTS.into_iter().cycle() {
        interval.tick().await;
        let address = ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 4711)));
        let request = Request::get(path).header("x-api-key", customer).extension(address);
        let request = request.body(Body::empty());
        if let Ok(request) = request {
            // A router returns no error.
            let Ok(_) = shop.clone().oneshot(request).await;
        }
    }
}
