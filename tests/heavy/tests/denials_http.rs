//! Denials over real HTTP: no cache may store one, and gRPC statuses go to gRPC requests alone.

use std::net::SocketAddr;

use axum::{Router, routing::any};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::{
    Error, Limiter, OnFailure, Policy, RateLimitLayer, Rule, by,
    error::ErrorKind,
    store::{Answer, Request as StoreRequest, Store},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The status, the headers and the body of a response.
type Reply = (u16, HeaderMap, Bytes);

fn rule() -> Rule {
    Rule::new(Policy::new("api", "1/h").unwrap(), by::constant("all"))
}

/// A server whose only unit is spent.
async fn spent(layer: RateLimitLayer) -> SocketAddr {
    let app = Router::new().route("/", any(|| async { "hello" })).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    http1(address, "GET", &[]).await;
    address
}

async fn problems() -> SocketAddr {
    spent(RateLimitLayer::new(Limiter::in_memory(), rule())).await
}

/// Sends a request as bytes over HTTP/1.1, so that its lines are exactly these.
async fn http1(address: SocketAddr, method: &str, content_types: &[&str]) -> Reply {
    let mut request = format!("{method} / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    content_types.iter().for_each(|line| request += &format!("content-type: {line}\r\n"));
    request += "content-length: 0\r\n\r\n";
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    let reply = String::from_utf8(reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in lines.map(|line| line.split_once(": ").unwrap()) {
        let name: http::HeaderName = name.parse().unwrap();
        headers.append(name, value.parse().unwrap());
    }
    (status, headers, Bytes::from(body.to_owned()))
}

async fn read(response: Response<hyper::body::Incoming>) -> Reply {
    let (head, body) = response.into_parts();
    (head.status.as_u16(), head.headers, body.collect().await.unwrap().to_bytes())
}

async fn http2(address: SocketAddr, method: &str, content_types: &[&str]) -> Reply {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri("http://x/");
    for content_type in content_types {
        request = request.header("content-type", *content_type);
    }
    let request = request.body(Full::<Bytes>::default()).unwrap();
    read(sender.send_request(request).await.unwrap()).await
}

fn assert_problem((status, headers, body): &Reply, what: &str) {
    assert_eq!(*status, 429, "{what}");
    assert_eq!(headers["cache-control"], "no-store", "{what}");
    assert_eq!(headers["content-type"], "application/problem+json", "{what}");
    assert!(!headers.contains_key("grpc-status"), "{what}");
    assert!(headers.contains_key("retry-after"), "{what}");
    assert_eq!(body.is_empty(), what.starts_with("HEAD"), "{what}");
}

const GRPC_WEB: &str = "application/grpc-web";

#[tokio::test]
async fn requests_that_only_look_like_grpc_get_a_429() {
    let address = problems().await;
    for content_type in ["application/grpc", "application/grpc;evil=1", "Application/gRPC"] {
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "post"] {
            let reply = http1(address, method, &[content_type]).await;
            assert_problem(&reply, &format!("{method} {content_type}"));
        }
        for method in ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let reply = http2(address, method, &[content_type]).await;
            assert_problem(&reply, &format!("{method} HTTP/2 {content_type}"));
        }
    }
    for method in ["GET", "HEAD", "PUT", "OPTIONS"] {
        let reply = http1(address, method, &[GRPC_WEB]).await;
        assert_problem(&reply, &format!("{method} gRPC-Web"));
    }
    for lines in [
        &[GRPC_WEB, GRPC_WEB][..],
        &["application/json", GRPC_WEB],
        &["application/grpc-web, application/json"],
        &["application/grpc-webby"],
        &["application/grpc-web/x"],
        &["application/grpc-web+"],
        &["application/grpc-web+a b"],
        &["text/plain;application/grpc-web"],
        &[""],
        &[],
    ] {
        assert_problem(&http1(address, "POST", lines).await, &format!("POST {lines:?}"));
    }
    let twice = ["application/grpc", "application/grpc"];
    assert_problem(&http2(address, "POST", &twice).await, "POST HTTP/2 twice");
}

#[tokio::test]
async fn grpc_answers_have_a_registered_content_type_and_are_not_stored() {
    let address = problems().await;
    for (content_type, expected) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc+proto"),
        ("application/grpc+json", "application/grpc+json"),
        ("application/grpc+evil", "application/grpc"),
        ("application/grpc;evil=1", "application/grpc"),
        ("application/grpc+proto ; a=b", "application/grpc+proto"),
        ("Application/GRPC", "application/grpc"),
    ] {
        let (status, headers, body) = http2(address, "POST", &[content_type]).await;
        assert_eq!((status, body.len()), (200, 0), "{content_type}");
        assert_eq!(headers["content-type"], expected);
        assert_eq!(headers["grpc-status"], "8");
        assert_eq!(headers["cache-control"], "no-store", "{content_type}");
    }
}

/// A trailers-only response of gRPC-Web: the status is in the headers, and the body is empty.
#[tokio::test]
async fn grpc_web_over_http1_and_http2() {
    let address = problems().await;
    let (_, _, body) = http1(address, "POST", &["application/json"]).await;
    assert!(!body.is_empty());
    for (content_type, expected) in [
        ("application/grpc-web", "application/grpc-web"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        ("application/grpc-web+json", "application/grpc-web+json"),
        ("application/grpc-web+thrift", "application/grpc-web"),
        ("application/grpc-web-text", "application/grpc-web-text"),
        ("application/grpc-web-text+proto", "application/grpc-web-text+proto"),
        ("application/grpc-web-text-base64", "application/problem+json"),
        ("application/grpc-web;x=\"application/grpc\"", "application/grpc-web"),
    ] {
        for reply in [
            http1(address, "POST", &[content_type]).await,
            http2(address, "POST", &[content_type]).await,
        ] {
            if expected == "application/problem+json" {
                assert_problem(&reply, content_type);
                continue;
            }
            let (status, headers, body) = reply;
            assert_eq!((status, body.len()), (200, 0), "{content_type}");
            assert_eq!(headers["content-type"], expected);
            assert_eq!(headers["cache-control"], "no-store");
            assert_eq!(headers["grpc-status"], "8");
            assert!(headers["grpc-message"].to_str().unwrap().starts_with("The quota allows"));
            assert!(headers.contains_key("grpc-status-details-bin"));
        }
    }
    // A client that sends a message and reads the response with hyper.
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let message = Full::new(Bytes::from_static(b"\0\0\0\0\x02\x0a\0"));
    let request = Request::post("/").header("host", "x").header("content-type", GRPC_WEB);
    let request = request.header("x-grpc-web", "1").body(message).unwrap();
    let (status, headers, body) = read(sender.send_request(request).await.unwrap()).await;
    assert_eq!((status, body.len(), &headers["content-length"]), (200, 0, &"0".parse().unwrap()));
    assert_eq!(headers["grpc-status"], "8");
}

#[derive(Debug)]
struct Down;

impl Store for Down {
    fn call(&self, _: StoreRequest<'_>, _: Option<std::time::Instant>) -> Answer {
        Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
    }
}

fn cacheable() -> Response<String> {
    let mut response = Response::builder();
    for name in ["cache-control", "cdn-cache-control", "x-accel-expires", "surrogate-control"] {
        response = response.header(name, "public, max-age=600").header(name, "immutable");
    }
    response.header("x-kept", "1").body("slow down".into()).unwrap()
}

/// Each format of a denial, of an impossible cost and of an outage.
#[tokio::test]
async fn no_response_of_the_layer_may_be_stored() {
    let formats: [fn(RateLimitLayer) -> RateLimitLayer; 3] = [
        |layer| layer,
        RateLimitLayer::plain_text,
        |layer| {
            let layer = layer.on_denied(|_, _| cacheable());
            layer.on_over_capacity(|_, _| cacheable()).on_unavailable(|_, _| cacheable())
        },
    ];
    for format in formats {
        let denied = spent(format(RateLimitLayer::new(Limiter::in_memory(), rule()))).await;
        let dear = spent(format(RateLimitLayer::new(Limiter::in_memory(), rule().cost(|_| 2))));
        let closed = rule().on_failure(OnFailure::Deny);
        let down = spent(format(RateLimitLayer::new(Limiter::new(Down), closed))).await;
        for (address, expected, grpc_status) in
            [(denied, 429, "8"), (dear.await, 403, "9"), (down, 503, "14")]
        {
            let (status, headers, body) = http1(address, "GET", &[]).await;
            assert_eq!(status, expected);
            for name in ["cdn-cache-control", "x-accel-expires", "surrogate-control"] {
                assert!(!headers.contains_key(name), "{name}");
            }
            assert_eq!(headers.contains_key("x-kept"), body == "slow down");
            let values: Vec<_> = headers.get_all("cache-control").iter().collect();
            assert_eq!(values, ["no-store"], "{expected}");
            let (status, headers, _) = http2(address, "POST", &["application/grpc"]).await;
            assert_eq!((status, &headers["grpc-status"]), (200, &grpc_status.parse().unwrap()));
            assert_eq!(headers["cache-control"], "no-store");
        }
    }
}
