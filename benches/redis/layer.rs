//! Requests per second through the layer over Redis, beside the limiter alone, and beside what one would write
//! by hand: an EVALSHA of one script over one multiplexed connection, alone and in a layer.
//!
//! The layer and the limiter have their default settings. The inner service responds at once, so a request costs
//! what the layer and Redis cost.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderValue, Request, Response, StatusCode, header::RETRY_AFTER};
use plimsoll::{Limiter, Policy, RateLimitLayer, RedisStore, Rule, by};
use redis::{Cmd, Script, Value, aio::MultiplexedConnection};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    hand_written::{RIVALS, Rival},
    server::Server,
    throughput::{Measurements, median, round},
};

const ROUNDS: usize = 7;
const KEYS: u64 = 1_000;

/// A service that responds at once.
#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(String::new())))
    }
}

/// A hand-written limit: the connection, the script and its arguments.
#[derive(Clone)]
struct ByHand {
    connection: MultiplexedConnection,
    sha: Arc<str>,
    arguments: &'static [u64],
}

impl ByHand {
    async fn is_admitted(&self, client: &str) -> bool {
        let mut command = Cmd::new();
        let name = format!("raw:{{{client}}}:rival");
        command.arg("EVALSHA").arg(&*self.sha).arg(1).arg(name).arg(self.arguments);
        let reply: Value =
            command.query_async(&mut self.connection.clone()).await.expect("an answer");
        matches!(&reply, Value::Array(parts) if parts.first() != Some(&Value::Int(0)))
    }

    /// Handles a request as a hand-written layer does.
    async fn handle(&self, request: Request<()>) -> Response<String> {
        let client = request.headers().get("x-client").expect("a client");
        if self.is_admitted(client.to_str().expect("text")).await {
            return Inner.call(request).await.expect("infallible");
        }
        let mut response = Response::new("too many requests".to_owned());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(1));
        response
    }
}

fn client(key: u64) -> String {
    format!("{key:022}")
}

fn request(key: u64) -> Request<()> {
    Request::builder().uri("/").header("x-client", client(key)).body(()).expect("valid")
}

pub(crate) async fn run(seconds: f64) {
    println!(
        "the layer, {KEYS} keys, 1000 requests/s; medians of {ROUNDS} rounds, x of an EVALSHA"
    );
    println!(
        "{:<26} {:>9} {:>7} {:>9} {:>7} {:>9} {:>7} {:>9}",
        "", "limiter", "x", "layer", "x", "by hand", "x", "EVALSHA"
    );
    for rival in &RIVALS {
        for tasks in [64, 256] {
            compare(rival, tasks, seconds).await;
        }
    }
}

async fn compare(rival: &Rival, tasks: usize, seconds: f64) {
    let server = Server::start();
    let policy = Policy::new("rival", rival.quota).expect("valid");
    let limiter = Limiter::new(RedisStore::connect(&server.url()).await.expect("a store"));
    let rule = Rule::new(policy.clone(), by::header("x-client"));
    let service = RateLimitLayer::new(limiter.clone(), rule).layer(Inner);
    let options = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let raw = server.client();
    let raw = raw.get_multiplexed_async_connection_with_config(&options);
    let _: String = server.ask(&["SCRIPT", "LOAD", rival.script]);
    let by_hand = ByHand {
        connection: raw.await.expect("a connection"),
        sha: Script::new(rival.script).get_hash().into(),
        arguments: rival.arguments,
    };
    let mut rounds: [Measurements; 4] = Default::default();
    for _ in 0..ROUNDS {
        let [limiter_rounds, layer_rounds, layer_by_hand_rounds, by_hand_rounds] = &mut rounds;
        let limiter = limiter.clone();
        let policy = policy.clone();
        round(tasks, seconds, KEYS, limiter_rounds, move |key| {
            let limiter = limiter.clone();
            let policy = policy.clone();
            async move {
                let charge = policy.charge(client(key), 1);
                drop(limiter.check(charge).await.expect("an answer"));
            }
        })
        .await;
        let service = service.clone();
        round(tasks, seconds, KEYS, layer_rounds, move |key| {
            let mut service = service.clone();
            async move { drop(service.call(request(key)).await.expect("infallible")) }
        })
        .await;
        let handler = by_hand.clone();
        round(tasks, seconds, KEYS, layer_by_hand_rounds, move |key| {
            let handler = handler.clone();
            async move { drop(handler.handle(request(key)).await) }
        })
        .await;
        let by_hand = by_hand.clone();
        round(tasks, seconds, KEYS, by_hand_rounds, move |key| {
            let by_hand = by_hand.clone();
            async move {
                by_hand.is_admitted(&client(key)).await;
            }
        })
        .await;
    }
    let [ours, layer, layer_by_hand, evalsha] = rounds.map(|rounds| median(&rounds.rates) / 1e3);
    println!(
        "{:<26} {ours:>9.1} {:>7.2} {layer:>9.1} {:>7.2} {layer_by_hand:>9.1} {:>7.2} {evalsha:>9.1}",
        format!("{}, {tasks} tasks", rival.name),
        ours / evalsha,
        layer / evalsha,
        layer_by_hand / evalsha,
    );
}
