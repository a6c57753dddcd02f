//! HTTP/2 beside HTTP/1.1: many streams of one connection, and charges that the response settles.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::{Limiter, Policy, RateLimitLayer, Rule, by};
use plimsoll_testing::web::{http1, serve};
use tokio::net::TcpStream;

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).unwrap()
}

async fn http2(address: SocketAddr) -> SendRequest<Empty<Bytes>> {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Requests `/` in a stream of its own. Returns the status and the length of the body.
async fn ask(mut sender: SendRequest<Empty<Bytes>>) -> (u16, usize) {
    let request = Request::get("http://localhost/").body(Empty::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    (status, response.into_body().collect().await.unwrap().to_bytes().len())
}

#[tokio::test]
async fn keep_alive_and_many_streams_of_one_connection() {
    let rule = Rule::new(policy("calls", "5/min"), by::peer_ip());
    let app = Router::new()
        .route("/", get(|| async { "ok" }))
        .layer(RateLimitLayer::new(Limiter::in_memory(), rule));
    let address = serve(app).await;
    let mut client = http1(address).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(client.get("/").await.status);
    }
    let connection = http2(address).await;
    let streams = (0..6).map(|_| ask(connection.clone()));
    let replies = futures_util::future::join_all(streams).await;
    statuses.extend(replies.into_iter().map(|(status, _)| status));
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429, 429]);
    // A denial with its body leaves the connection good.
    for _ in 0..3 {
        let reply = client.get("/").await;
        assert_eq!(reply.status, 429);
        assert!(reply.body.starts_with(b"{\"type\""));
    }
}

#[tokio::test]
async fn bytes_are_settled_when_the_body_ends() {
    let (limiter, bytes) = (Limiter::in_memory(), policy("bytes", "1000/h"));
    let rule =
        Rule::new(bytes.clone(), by::constant("all")).cost(|_| 300).cost_of_body(|sent| sent);
    let layer = RateLimitLayer::new(limiter.clone(), rule);
    let address = serve(Router::new().route("/", get(async || "x".repeat(120))).layer(layer)).await;
    assert_eq!(ask(http2(address).await).await, (200, 120));
    // Settling happens on the server's side of the connection.
    for _ in 0..4_000 {
        let peek = limiter.peek(bytes.charge("all", 0)).await.unwrap();
        if peek.binding().unwrap().standing().remaining == 880 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the charge is not settled");
}
