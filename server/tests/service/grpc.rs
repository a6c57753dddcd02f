//! The gRPC listener: health, and the clients that may use its services.

use std::time::Duration;

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
