//! The example of tower_governor's README beside its translation in docs/migrating.md.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use plimsoll::{Limiter, Policy, RateLimitLayer, Rule, by};
use plimsoll_testing::web::{Client, Reply, serve};
use tokio::{net::TcpSocket, time::Instant};
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

async fn hello() -> &'static str {
    "Hello world"
}

/// Five requests at once for each address, and one more every two seconds.
fn theirs() -> Router {
    let config = GovernorConfigBuilder::default().per_second(2).burst_size(5).finish().unwrap();
    Router::new().route("/", get(hello)).layer(GovernorLayer::new(config))
}

fn ours() -> Result<Router, plimsoll::Error> {
    let policy = Policy::new("per-ip", "1/2s token-bucket(5)")?;
    let layer = RateLimitLayer::new(Limiter::in_memory(), Rule::new(policy, by::peer_ip()));
    Ok(Router::new().route("/", get(hello)).layer(layer))
}

/// Connects from an address of the loopback network.
async fn connect(from: [u8; 4], to: SocketAddr) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let io = TokioIo::new(socket.connect(to).await.unwrap());
    let (sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    Client(sender)
}

/// Returns the replies to seven requests of one client, and then to one of another.
async fn replies(app: Router) -> Vec<Reply> {
    let address = serve(app).await;
    let mut replies = Vec::new();
    for (from, requests) in [([127, 0, 0, 1], 7), ([127, 0, 0, 2], 1)] {
        let mut client = connect(from, address).await;
        for _ in 0..requests {
            replies.push(client.get("/").await);
        }
    }
    replies
}

#[tokio::test]
async fn the_same_requests_are_admitted() {
    // tower_governor's clock is the real one, and gives a unit back after two seconds.
    let mut attempts = 0..100;
    let (theirs, ours) = loop {
        let begin = Instant::now();
        let both = (replies(theirs()).await, replies(ours().unwrap()).await);
        if begin.elapsed() < Duration::from_millis(900) {
            break both;
        }
        attempts.next().expect("a machine that answers 16 requests in 900 ms");
    };
    let statuses = |replies: &[Reply]| replies.iter().map(|it| it.status).collect::<Vec<_>>();
    assert_eq!(statuses(&theirs), [200, 200, 200, 200, 200, 429, 429, 200]);
    assert_eq!(statuses(&ours), statuses(&theirs));
    assert_eq!(ours[0].body, theirs[0].body);

    // The unit comes back after 1.1 to 2 s. Theirs is rounded down: the client that obeys comes too early.
    assert_eq!(theirs[5].headers["retry-after"], "1");
    assert_eq!(ours[5].headers["retry-after"], "2");
    // Headers on responses to admitted requests are an option there, and the default here.
    assert!(!theirs[0].headers.contains_key("x-ratelimit-remaining"));
    assert_eq!(ours[0].headers["x-ratelimit-remaining"], "4");
}
