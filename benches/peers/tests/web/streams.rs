//! WebSockets and server-sent events: the request is charged once, messages are not.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{
    Router,
    extract::ws::{Message, WebSocket, WebSocketUpgrade},
    response::sse::{Event, Sse},
    routing::{any, get},
};
use futures_util::stream;
use plimsoll::{
    Limiter, MemoryStore, Policy, RateLimitLayer, Rule, by,
    store::{Answer, Request, Store},
};
use tokio::{sync::mpsc, time::timeout};

use crate::{Connection, ask, policy, remaining, serve};

const UPGRADE: [&str; 4] = [
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
];

/// A store whose answers are pending at first, as the answers of a remote store are.
#[derive(Debug)]
struct PendingStore(MemoryStore);

impl Store for PendingStore {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let reply = self.0.call(request, deadline).now().unwrap();
        Answer::pending(async move {
            tokio::task::yield_now().await;
            reply
        })
    }
}

/// Echoes messages, and charges each of them.
async fn echo(mut socket: WebSocket, limiter: Limiter, messages: Policy) {
    while let Some(Ok(Message::Text(text))) = socket.recv().await {
        let admitted = match limiter.check(messages.charge("everybody", 1)).await {
            Ok(decision) => decision.is_allowed(),
            Err(_) => true,
        };
        let answer = if admitted { text } else { "slow down".into() };
        if socket.send(Message::Text(answer)).await.is_err() {
            return;
        }
    }
}

async fn echo_server(limiter: &Limiter, layer: RateLimitLayer, messages: &Policy) -> SocketAddr {
    let (limiter, messages) = (limiter.clone(), messages.clone());
    let handler = async move |upgrade: WebSocketUpgrade| {
        upgrade.on_upgrade(|socket| echo(socket, limiter, messages))
    };
    serve(Router::new().route("/", any(handler)).layer(layer)).await
}

#[tokio::test]
async fn an_upgrade_is_charged_once_and_messages_by_the_handler() {
    for remote in [false, true] {
        let store = MemoryStore::new(Default::default());
        let limiter = if remote { Limiter::new(PendingStore(store)) } else { Limiter::new(store) };
        let (upgrades, messages) = (policy("upgrades", "2/h"), policy("messages", "3/h"));
        let rule = Rule::new(upgrades.clone(), by::constant("everybody"));
        let layer = RateLimitLayer::new(limiter.clone(), rule);
        let address = echo_server(&limiter, layer, &messages).await;

        let mut socket = Connection::send(address, "GET /", &UPGRADE).await;
        let (status, headers) = socket.head().await;
        assert_eq!((status, &headers["x-ratelimit-remaining"]), (101, &"1".parse().unwrap()));
        assert_eq!(headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for answer in ["hello", "hello", "hello", "slow down"] {
            socket.send_message("hello").await;
            assert_eq!(socket.message().await, answer);
        }
        assert_eq!(remaining(&limiter, &upgrades, "everybody").await, 1, "messages are free");

        assert_eq!(ask(address, "GET /", &UPGRADE).await.0, 101);
        let (status, headers) = ask(address, "GET /", &UPGRADE).await;
        assert_eq!(status, 429, "before the handler sees the upgrade");
        assert!(headers.contains_key("retry-after") && !headers.contains_key("upgrade"));
    }
}

/// The response to an upgrade has no body, so that 0 bytes are charged as soon as it is sent.
#[tokio::test]
async fn the_body_of_an_upgrade_is_empty() {
    let limiter = Limiter::in_memory();
    let (bytes, messages) = (policy("bytes", "1000/h"), policy("messages", "9/h"));
    let rule = Rule::new(bytes.clone(), by::constant("everybody"))
        .cost(|_| 100)
        .cost_of_body(|bytes| 7 + bytes);
    let layer = RateLimitLayer::new(limiter.clone(), rule);
    let address = echo_server(&limiter, layer, &messages).await;
    let mut socket = Connection::send(address, "GET /", &UPGRADE).await;
    assert_eq!(socket.head().await.0, 101);
    for _ in 0..3 {
        socket.send_message("hello").await;
        assert_eq!(socket.message().await, "hello");
        assert_eq!(remaining(&limiter, &bytes, "everybody").await, 993);
    }
}

/// A server whose response is the events of a channel, for a rule that charges the bytes.
async fn events(limiter: &Limiter, bytes: &Policy) -> (Connection, mpsc::Sender<&'static str>) {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = std::sync::Arc::new(std::sync::Mutex::new(Some(receiver)));
    let handler = async move || {
        let receiver: mpsc::Receiver<&'static str> = receiver.lock().unwrap().take().unwrap();
        Sse::new(stream::unfold(receiver, async |mut receiver| {
            let event = Event::default().data(receiver.recv().await?);
            Some((Ok::<_, Infallible>(event), receiver))
        }))
    };
    let rule = Rule::new(bytes.clone(), by::constant("everybody"))
        .cost(|_| 100)
        .cost_of_body(|bytes| bytes);
    let app = Router::new().route("/", get(handler));
    let address = serve(app.layer(RateLimitLayer::new(limiter.clone(), rule))).await;
    let mut connection = Connection::send(address, "GET /", &[]).await;
    let (status, headers) = connection.head().await;
    assert_eq!((status, &headers["content-type"]), (200, &"text/event-stream".parse().unwrap()));
    assert_eq!(headers["x-ratelimit-remaining"], "900", "the estimate");
    (connection, sender)
}

#[tokio::test]
async fn server_sent_events_are_settled_when_the_stream_ends() {
    let (limiter, bytes) = (Limiter::in_memory(), policy("bytes", "1000/h"));
    let (mut connection, events) = events(&limiter, &bytes).await;
    for _ in 0..2 {
        events.send("news").await.unwrap();
        connection.read_until("data: news\n\n").await;
        assert_eq!(remaining(&limiter, &bytes, "everybody").await, 900, "nothing in between");
    }
    drop(events);
    connection.read_until("0\r\n\r\n").await;
    let sent = 2 * "data: news\n\n".len() as u64;
    assert_eq!(remaining(&limiter, &bytes, "everybody").await, 1000 - sent);
}

#[tokio::test]
async fn server_sent_events_are_settled_when_the_client_disconnects() {
    let (limiter, bytes) = (Limiter::in_memory(), policy("bytes", "1000/h"));
    let (mut connection, events) = events(&limiter, &bytes).await;
    events.send("news").await.unwrap();
    connection.read_until("data: news\n\n").await;
    drop(connection);
    let settled = async {
        events.closed().await;
        while remaining(&limiter, &bytes, "everybody").await == 900 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), settled).await.expect("the body is dropped");
    let sent = "data: news\n\n".len() as u64;
    assert_eq!(remaining(&limiter, &bytes, "everybody").await, 1000 - sent);
}
