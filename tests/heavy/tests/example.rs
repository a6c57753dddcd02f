//! Starts the examples `grpc` and `reqwest`.
#![cfg(any(feature = "reqwest", feature = "tonic"))]

#[path = "../../support/example.rs"]
mod example;

#[cfg(feature = "tonic")]
#[tokio::test]
async fn grpc() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

    let example = example::start("grpc");
    let url = format!("http://{}", example.address);
    let channel = tonic::transport::Channel::from_shared(url).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    let question = HealthCheckRequest { service: "demo".into() };
    for _ in 0..3 {
        assert_eq!(client.check(question.clone()).await.unwrap().into_inner().status, 1);
    }
    assert_eq!(example.get("/").status, 200);
    assert_eq!(example.get("/").status, 200);
    assert_eq!(example.get("/").status, 429);
    let status = client.check(question).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
}

#[cfg(feature = "reqwest")]
#[test]
fn reqwest() {
    let output = example::program("reqwest").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    // Without pauses, the service denies four of them.
    assert_eq!(text.matches("200 OK, hello").count(), 7, "{text}");
}
