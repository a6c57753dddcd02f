//! gRPC: a real tonic server and client, HTTP on the same budget, and the bytes of a denial.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Empty};
use plimsoll::{
    Decision, Limiter, MemoryStore, OnFailure, Policy, RateLimitLayer, Rule, by,
    clock::ManualClock,
    layer::ResponseBody,
    memory::MemoryConfig,
    store::{Answer, Store},
};
use plimsoll_testing::web::serve;
use tonic::{Code, service::Routes, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;
use tower::{Layer, Service, ServiceExt, service_fn};

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).unwrap()
}

/// tonic's own server, as an application runs it.
async fn tonic_server(layer: RateLimitLayer) -> SocketAddr {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("demo", tonic_health::ServingStatus::Serving).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

async fn client(address: SocketAddr) -> HealthClient<Channel> {
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

/// A request of gRPC without its body.
fn grpc_request() -> Request<()> {
    let request = Request::post("/").version(Version::HTTP_2);
    request.header("content-type", "application/grpc").body(()).unwrap()
}

fn check_request() -> HealthCheckRequest {
    HealthCheckRequest { service: "demo".into() }
}

#[tokio::test]
async fn a_tonic_client_sees_code_message_and_delay() {
    let rule = Rule::new(policy("calls", "2/min"), by::peer_ip());
    let second = Rule::new(policy("roomy", "100/min"), by::peer_ip());
    let address = tonic_server(RateLimitLayer::new(Limiter::in_memory(), rule).and(second)).await;
    let mut client = client(address).await;
    for _ in 0..2 {
        let response = client.check(check_request()).await.unwrap();
        assert!(response.metadata().contains_key("ratelimit"));
        assert_eq!(response.into_inner().status, 1);
    }
    let status = client.check(check_request()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status.message().starts_with("The quota allows this request again in "),
        "{}",
        status.message()
    );
    let delay = status.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(delay > Duration::from_secs(55) && delay <= Duration::from_secs(60), "{delay:?}");
    let failure = status.get_details_quota_failure().unwrap();
    assert_eq!(failure.violations.len(), 1);
    assert_eq!(failure.violations[0].subject, "calls");
    assert_eq!(failure.violations[0].description, "cost 1, remaining 0 of 2");
    // A streaming call is denied the same way, and the connection is still good.
    let status = client.watch(check_request()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
}

/// A call is in flight until its stream ends, or until the client drops it.
#[tokio::test]
async fn a_streaming_call_holds_its_unit_until_the_stream_ends() {
    let (limiter, calls) = (Limiter::in_memory(), policy("calls", "2 concurrent"));
    let layer = RateLimitLayer::new(limiter.clone(), Rule::new(calls.clone(), by::constant("all")));
    let address = tonic_server(layer).await;
    let free = async || {
        let peek = limiter.peek(calls.charge("all", 0)).await.unwrap();
        peek.binding().unwrap().standing().remaining
    };
    let becomes_free = async |expected: u64| {
        for _ in 0..1_000 {
            if free().await == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{} units are free, and not {expected}", free().await);
    };
    let mut client = client(address).await;
    let mut first = client.watch(check_request()).await.unwrap().into_inner();
    let second = client.watch(check_request()).await.unwrap().into_inner();
    assert_eq!(first.message().await.unwrap().unwrap().status, 1);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(free().await, 0, "the head of the response and a message do not end the call");
    let status = client.check(check_request()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(second);
    becomes_free(1).await;
    assert!(client.check(check_request()).await.is_ok());
    becomes_free(1).await;
    drop(first);
    becomes_free(2).await;
}

#[tokio::test]
async fn a_cost_over_capacity_is_a_failed_precondition() {
    let rule = Rule::new(policy("calls", "2/min"), by::peer_ip()).cost(|_| 3);
    let address = tonic_server(RateLimitLayer::new(Limiter::in_memory(), rule)).await;
    let status = client(address).await.check(check_request()).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.get_details_retry_info().is_none());
    assert_eq!(status.get_details_quota_failure().unwrap().violations.len(), 1);
}

#[derive(Debug)]
struct Broken;

impl Store for Broken {
    fn call(&self, _: plimsoll::store::Request<'_>, _: Option<std::time::Instant>) -> Answer {
        let error = plimsoll::Error::new(plimsoll::error::ErrorKind::Unavailable, "down");
        Answer::pending(async { Err(error) })
    }
}

#[tokio::test]
async fn a_store_that_fails_denies_or_admits() {
    let rule = || Rule::new(policy("calls", "2/min"), by::peer_ip());
    let deny = rule().on_failure(OnFailure::Deny);
    let address = tonic_server(RateLimitLayer::new(Limiter::new(Broken), deny)).await;
    let status = client(address).await.check(check_request()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.get_details_retry_info().is_some());
    let address = tonic_server(RateLimitLayer::new(Limiter::new(Broken), rule())).await;
    assert!(client(address).await.check(check_request()).await.is_ok());
}

#[tokio::test]
async fn http_and_grpc_share_one_budget() {
    let rule = Rule::new(policy("both", "3/min"), by::peer_ip());
    let (_, health) = tonic_health::server::health_reporter();
    let app = Routes::new(health)
        .into_axum_router()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(Limiter::in_memory(), rule));
    let address = serve(app).await;

    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut http, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let mut ask = async || {
        let request = Request::get("/").header("host", "x").body(Empty::<Bytes>::new()).unwrap();
        let response = http.send_request(request).await.unwrap();
        let status = response.status();
        response.into_body().collect().await.unwrap();
        status.as_u16()
    };
    let mut grpc = client(address).await;
    let everything = HealthCheckRequest { service: String::new() };
    assert_eq!(ask().await, 200);
    assert!(grpc.check(everything.clone()).await.is_ok());
    assert_eq!(ask().await, 200);
    assert_eq!(grpc.check(everything.clone()).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(ask().await, 429);
}

async fn denied(content_type: &str) -> Response<ResponseBody<Empty<Bytes>>> {
    let rule = Rule::new(policy("calls", "1/min"), by::constant("all"));
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let mut service = RateLimitLayer::new(Limiter::in_memory(), rule).layer(inner);
    let request = || {
        let request = Request::post("/").version(Version::HTTP_2);
        request.header("content-type", content_type).body(()).unwrap()
    };
    service.ready().await.unwrap().call(request()).await.unwrap();
    service.ready().await.unwrap().call(request()).await.unwrap()
}

#[tokio::test]
async fn by_content_type() {
    for grpc in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpc-web-text",
        "application/grpc-web-text+proto",
    ] {
        let response = denied(grpc).await;
        assert_eq!(response.status(), 200, "{grpc}");
        assert_eq!(response.headers()["content-type"], grpc);
        assert_eq!(response.headers()["grpc-status"], "8");
        assert!(response.headers().contains_key("grpc-retry-pushback-ms"));
        assert!(http_body::Body::is_end_stream(response.body()), "Trailers-Only: {grpc}");
        let size: usize =
            response.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        assert!(size < 8192, "{size}");
    }
    for http in ["application/grpcfoo", "application/grpc-webby", "application/json", "text/plain"]
    {
        let response = denied(http).await;
        assert_eq!(response.status(), 429, "{http}");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
    }
}

#[tokio::test]
async fn readiness_and_calls_of_one_clone() {
    /// Answers only on the clone that was polled ready; clones are not.
    struct Careful(bool);
    impl Clone for Careful {
        fn clone(&self) -> Self {
            Self(false)
        }
    }
    impl Service<Request<tonic::body::Body>> for Careful {
        type Response = Response<tonic::body::Body>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;
        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Infallible>> {
            self.0 = true;
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Request<tonic::body::Body>) -> Self::Future {
            assert!(std::mem::take(&mut self.0), "called before it was ready");
            std::future::ready(Ok(Response::new(tonic::body::Body::empty())))
        }
    }
    for limiter in [Limiter::in_memory(), Limiter::new(Broken)] {
        let rule = Rule::new(policy("calls", "1/min"), by::constant("all"));
        let mut service = RateLimitLayer::new(limiter, rule).layer(Careful(false));
        for _ in 0..3 {
            let request = Request::post("/")
                .version(Version::HTTP_2)
                .header("content-type", "application/grpc")
                .body(tonic::body::Body::empty())
                .unwrap();
            service.ready().await.unwrap().call(request).await.unwrap();
        }
    }
}

/// RetryInfo has the wait to the nanosecond, and the pushback has it in milliseconds, rounded up.
#[tokio::test]
async fn the_wait_is_exact() {
    // Names of several lengths, because base64 would pad the details of some.
    for name in ["a", "ab", "abc"] {
        let clock = ManualClock::at(1_000_000);
        let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
        let rule = Rule::new(policy(name, "1/min"), by::constant("all"));
        let inner = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
        let mut service = RateLimitLayer::new(Limiter::new(store), rule).layer(inner);
        service.ready().await.unwrap().call(grpc_request()).await.unwrap();
        clock.advance(Duration::from_micros(500_001));
        let response = service.ready().await.unwrap().call(grpc_request()).await.unwrap();
        let headers = response.headers();
        assert_eq!(headers["grpc-retry-pushback-ms"], "59500");
        assert_eq!(headers["grpc-message"], "The quota allows this request again in 60 seconds.");
        assert!(!headers["grpc-status-details-bin"].to_str().unwrap().ends_with('='));
        let status = tonic::Status::from_header_map(headers).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.details()[..2], [1 << 3, 8], "the code in google.rpc.Status");
        let delay = status.get_details_retry_info().unwrap().retry_delay.unwrap();
        assert_eq!(delay, Duration::from_nanos(59_499_999_000));
    }
}

/// The second request of a layer whose first rule allows one.
async fn second(layer: RateLimitLayer) -> Response<ResponseBody<Empty<Bytes>>> {
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let mut service = layer.layer(inner);
    service.ready().await.unwrap().call(grpc_request()).await.unwrap();
    service.ready().await.unwrap().call(grpc_request()).await.unwrap()
}

fn everybody(name: &str, quota: &str) -> Rule {
    Rule::new(policy(name, quota), by::constant("all"))
}

#[tokio::test]
async fn details_name_at_most_eight_policies() {
    let violations = |response: Response<ResponseBody<Empty<Bytes>>>| {
        let status = tonic::Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        let failure = status.get_details_quota_failure().unwrap();
        failure.violations.into_iter().map(|violation| violation.subject).collect::<Vec<_>>()
    };
    let layer = RateLimitLayer::new(Limiter::in_memory(), everybody("real", "1/min"))
        .and(everybody("shadowed", "1/min").shadow());
    assert_eq!(violations(second(layer).await), ["real"], "a shadow rule denies no request");
    let rules = (1..32).map(|number| everybody(&format!("{number:064}"), "1/min"));
    let first = RateLimitLayer::new(Limiter::in_memory(), everybody("0", "1/min"));
    let response = second(rules.fold(first, RateLimitLayer::and)).await;
    let details = response.headers()["grpc-status-details-bin"].len();
    assert!(details < 4096, "metadata is limited to 8 KiB: {details}");
    assert_eq!(violations(response).len(), 8);
}

#[tokio::test]
async fn on_denied_is_not_called_for_grpc() {
    let layer = RateLimitLayer::new(Limiter::in_memory(), everybody("calls", "1/min"))
        .on_denied(|_, _| "slow down");
    let response = second(layer).await;
    assert_eq!(response.headers()["grpc-status"], "8");
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn jitter_is_in_the_delay_and_in_the_pushback() {
    let mut spread = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let layer = RateLimitLayer::new(Limiter::in_memory(), everybody("calls", "1/10s"))
            .jitter(Duration::from_secs(100));
        let response = second(layer).await;
        let status = tonic::Status::from_header_map(response.headers()).unwrap();
        let delay = status.get_details_retry_info().unwrap().retry_delay.unwrap();
        let pushback = response.headers()["grpc-retry-pushback-ms"].to_str().unwrap();
        assert_eq!(delay.as_micros().div_ceil(1_000).to_string(), pushback, "one wait");
        assert!(delay > Duration::from_secs(9) && delay <= Duration::from_secs(110), "{delay:?}");
        spread.insert(delay.as_secs());
    }
    assert!(spread.len() > 5, "{spread:?}");
}

/// A handler that checks a limit itself answers with the status of the layer.
#[tokio::test]
async fn a_denied_check_is_the_status_that_the_layer_sends() {
    for (cost, code) in [(1, Code::ResourceExhausted), (2, Code::FailedPrecondition)] {
        let policy = policy("calls", "1/min");
        let clock = ManualClock::at(1_000_000);
        let limiter =
            || Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock.clone())));
        let rule = Rule::new(policy.clone(), by::constant("all")).cost(move |_| cost);
        let sent = second(RateLimitLayer::new(limiter(), rule)).await;
        let sent = tonic::Status::from_header_map(sent.headers()).unwrap();

        let limiter = limiter();
        let check = async || limiter.check(policy.charge("all", cost)).await.unwrap();
        let _ = check().await;
        let Decision::Denied(denied) = check().await else { panic!("the only unit is spent") };
        let made = tonic::Status::from(denied);
        assert_eq!((made.code(), made.message()), (sent.code(), sent.message()));
        assert_eq!(made.code(), code);
        assert_eq!(made.details(), sent.details());
        for name in ["grpc-retry-pushback-ms", "cache-control"] {
            assert_eq!(made.metadata().get(name), sent.metadata().get(name), "{name}");
        }
        // tonic sends it as it is.
        let headers = made.into_http::<()>().into_parts().0.headers;
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers.contains_key("grpc-retry-pushback-ms"), code == Code::ResourceExhausted);
        assert!(headers.contains_key("grpc-status-details-bin"));
    }
}
