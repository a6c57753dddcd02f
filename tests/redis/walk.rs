//! The requests whose files `./scripts/walk` lists.

use std::convert::Infallible;

use http::{Request, Response};
use plimsoll::{Limiter, RateLimitLayer, RedisStore, Resilience, Rule, by, redis::RedisConfig};
use plimsoll_testing::servers::{PATIENCE, Server};
use tokio::runtime::{Builder, Runtime};
use tower::{Service, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_layer::Layer;

use crate::{patient, policy};

type Limited = BoxCloneSyncService<Request<()>, u16, Infallible>;

/// Opens all connections with the requests of some clients, and then makes the requests of the walk.
#[test]
#[ignore = "a role: ./scripts/walk starts it"]
fn requests() {
    let redis = Server::start();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut limited = runtime.block_on(limited(&redis.url()));
    for client in 0..8 {
        let statuses = runtime.block_on(allowed_and_denied(&mut limited, &client.to_string()));
        assert_eq!(statuses, [200, 429]);
    }
    assert_eq!(the_walk(&runtime, &mut limited), [200, 429]);
}

/// Makes the two requests in which `./scripts/walk` counts.
#[inline(never)]
fn the_walk(runtime: &Runtime, limited: &mut Limited) -> [u16; 2] {
    runtime.block_on(allowed_and_denied(limited, "last"))
}

/// Returns a service with the default settings, except for its timeouts: a program runs slowly while it is measured.
async fn limited(url: &str) -> Limited {
    let store = RedisStore::connect_with(RedisConfig::url(url).with_settings(patient()));
    let store = store.await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::default().deadline(PATIENCE));
    let rule = Rule::new(policy("api", "1/h"), by::header("x-api-key"));
    let inner =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let service = RateLimitLayer::new(limiter, rule).layer(inner);
    BoxCloneSyncService::new(service.map_response(|response| response.status().as_u16()))
}

/// Makes two requests of a client whose quota is one, and returns their status codes.
async fn allowed_and_denied(limited: &mut Limited, client: &str) -> [u16; 2] {
    let mut statuses = [0; 2];
    for status in &mut statuses {
        let request = Request::builder().header("x-api-key", client).body(()).expect("a request");
        *status = limited.ready().await.expect("no error").call(request).await.expect("no error");
    }
    statuses
}
