//! The gRPC listener: health, and the clients that may use its services.

use std::time::Duration;

use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, rate_limit_response::Code as Decided,
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use plimsoll_testing::servers::directory;
use tonic::{Code, Request, transport::Channel};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};

use crate::support::Service;

async fn connect(service: &Service) -> Channel {
    let address = format!("http://{}", service.grpc);
    Channel::from_shared(address).unwrap().connect().await.unwrap()
}

fn named(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

fn status(response: &HealthCheckResponse) -> ServingStatus {
    response.status()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_turns_before_the_end() {
    let mut service = Service::start(&["--drain", "1s"]);
    let mut client = HealthClient::new(connect(&service).await);
    for name in ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"] {
        let response = client.check(named(name)).await.unwrap().into_inner();
        assert_eq!(status(&response), ServingStatus::Serving, "{name}");
    }
    assert_eq!(client.check(named("other")).await.unwrap_err().code(), Code::NotFound);
    let mut watched = client.watch(named("")).await.unwrap().into_inner();
    let first = watched.message().await.unwrap().unwrap();
    assert_eq!(status(&first), ServingStatus::Serving);
    service.signal("TERM");
    let next = watched.message().await.unwrap().unwrap();
    assert_eq!(status(&next), ServingStatus::NotServing);
    // The stream of a client that watches does not hold up the end.
    let (status, _) = service.wait(Duration::from_secs(8));
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_health_is_open_without_a_token() {
    let variables = [("PLIMSOLL_TOKEN", "token-of-a-client-0001")];
    let service = Service::start_with(&[], &variables);
    let channel = connect(&service).await;
    assert!(HealthClient::new(channel.clone()).check(named("")).await.is_ok());
    let call = |token: Option<&'static str>| {
        let mut client = tonic::client::Grpc::new(channel.clone());
        let mut request = Request::new(named(""));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        async move {
            client.ready().await.unwrap();
            let codec =
                tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
            let path = http::uri::PathAndQuery::from_static("/other.Service/Call");
            client.unary(request, path, codec).await.unwrap_err().code()
        }
    };
    assert_eq!(call(None).await, Code::Unauthenticated);
    assert_eq!(call(Some("token-of-a-client-0002")).await, Code::Unauthenticated);
    // A known client is let through, to a service that does not exist.
    assert_eq!(call(Some("token-of-a-client-0001")).await, Code::Unimplemented);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_watches_the_health_may_be_quiet() {
    let service = Service::start(&["--idle-timeout", "300ms", "--drain", "1s"]);
    let mut client = HealthClient::new(connect(&service).await);
    let mut watched = client.watch(named("")).await.unwrap().into_inner();
    assert_eq!(status(&watched.message().await.unwrap().unwrap()), ServingStatus::Serving);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    service.signal("TERM");
    assert_eq!(status(&watched.message().await.unwrap().unwrap()), ServingStatus::NotServing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_message_of_envoy_is_decided_and_one_that_is_too_long_is_out_of_range() {
    let folder = directory();
    let limits = "domain: shop\ndescriptors:\n  - key: user\n    \
                  rate_limit: { unit: hour, requests_per_unit: 1 }\n";
    std::fs::write(folder.join("shop.yaml"), limits).unwrap();
    let service = Service::start(&["--envoy-config", folder.to_str().unwrap()]);
    let mut client = RateLimitServiceClient::new(connect(&service).await);
    let request = |bytes: usize| {
        let entry = Entry { key: "user".to_owned(), value: "x".repeat(bytes) };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
        RateLimitRequest {
            domain: "shop".to_owned(),
            descriptors: vec![descriptor],
            ..Default::default()
        }
    };
    for bytes in [70 << 10, 100 << 10, 1 << 20, (4 << 20) - 64] {
        for expected in [Decided::Ok, Decided::OverLimit] {
            let response = client.should_rate_limit(request(bytes)).await.unwrap().into_inner();
            assert_eq!(response.overall_code(), expected, "{bytes}");
        }
    }
    for bytes in [4 << 20, 5 << 20] {
        let status = client.should_rate_limit(request(bytes)).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{bytes}: {status}");
    }
    // Also in JSON.
    let send = |bytes: usize| {
        let entries = serde_json::json!([{ "key": "user", "value": "y".repeat(bytes) }]);
        let body = serde_json::json!({ "domain": "shop", "descriptors": [{ "entries": entries }] });
        let body = body.to_string();
        let head = "POST /json HTTP/1.1\r\nhost: localhost\r\nconnection: close";
        let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let mut stream = std::net::TcpStream::connect(&service.http).unwrap();
        crate::support::exchange(&mut stream, request.as_bytes()).unwrap().status
    };
    assert_eq!([100 << 10, 100 << 10].map(send), [200, 429]);
    std::fs::remove_dir_all(folder).unwrap();
}
