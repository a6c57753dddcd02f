//! The routes `/json` and `/rlconfig`.

use std::net::SocketAddr;

use plimsoll::{ErrorKind, Limiter, Resilience};
use plimsoll_server::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use plimsoll_testing::web;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{limits_of_requests::Broken, support::Service};

const LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { name: users, unit: minute, requests_per_unit: 1 }
    metadata: { pool: a }
  - key: open
    rate_limit: { unlimited: true }
";

async fn post(address: SocketAddr, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /json HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

async fn serve(envoy: &Envoy) -> SocketAddr {
    web::serve(envoy.debug_router()).await
}

#[tokio::test]
async fn a_request_in_json_has_a_response_in_json() {
    let service = Service::new(LIMITS);
    let address = serve(&service.envoy).await;
    let body = r#"{"domain": "shop", "descriptors": [
        {"entries": [{"key": "user", "value": "a"}]}, {"entries": [{"key": "open"}]}]}"#;
    let (status, reply) = post(address, body).await;
    let mut reply: Value = serde_json::from_str(&reply).unwrap();
    assert_eq!(status, 200);
    assert_eq!(reply["dynamicMetadata"]["metadata"], json!({ "pool": "a" }));
    reply.as_object_mut().unwrap().remove("dynamicMetadata");
    reply.as_object_mut().unwrap().remove("responseHeadersToAdd");
    let limit = json!({ "name": "users", "requestsPerUnit": 1, "unit": "MINUTE" });
    let expected = json!({ "overallCode": "OK", "statuses": [
        { "code": "OK", "currentLimit": limit, "durationUntilReset": reply["statuses"][0]["durationUntilReset"] },
        { "code": "OK", "limitRemaining": u32::MAX },
    ] });
    assert_eq!(reply, expected);
    let (status, reply) = post(address, body).await;
    let reply: Value = serde_json::from_str(&reply).unwrap();
    assert_eq!((status, &reply["overallCode"]), (429, &json!("OVER_LIMIT")));
    // Both spellings of names, numbers as texts, and limits of their own.
    let body = r#"{"domain": "shop", "hits_addend": 2, "descriptors": [{"entries": [{"key": "x", "value": "y"}],
        "hitsAddend": "3", "limit": {"requests_per_unit": 10, "unit": "HOUR"}}]}"#;
    let (_, reply) = post(address, body).await;
    let reply: Value = serde_json::from_str(&reply).unwrap();
    assert_eq!(reply["statuses"][0]["limitRemaining"], 7);
}

#[tokio::test]
async fn a_body_with_a_mistake_is_a_bad_request_that_says_why() {
    let service = Service::new(LIMITS);
    let address = serve(&service.envoy).await;
    for (body, why) in [
        ("", "EOF"),
        ("7", "invalid type"),
        ("{}", "the domain of the request is empty"),
        (r#"{"domain": "shop"}"#, "no descriptors"),
        (r#"{"domian": "shop"}"#, "unknown field `domian`"),
        (r#"{"domain": "shop", "hitsAddend": -1, "descriptors": [{}]}"#, "NumberJson"),
        (
            r#"{"domain": "shop", "hitsAddend": 4294967296, "descriptors": [{}]}"#,
            "above 4294967295",
        ),
        (r#"{"domain": "shop", "descriptors": [{"hitsAddend": "x"}]}"#, "found the text \"x\""),
        (r#"{"domain": "shop", "descriptors": [{"limit": {"unit": "HOURS"}}]}"#, "HOURS"),
    ] {
        let (status, reply) = post(address, body).await;
        assert_eq!(status, 400, "{body}: {reply}");
        let problem: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(problem["status"], 400, "{body}: {reply}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{body}: {reply}");
    }
}

#[tokio::test]
async fn a_store_that_fails_is_no_mistake_of_the_client() {
    let config = EnvoyConfig::from_text("limits.yaml", LIMITS, EnvoyOptions::default()).unwrap();
    let limiter = Limiter::with(Broken(ErrorKind::Unavailable), Resilience::none());
    let address = serve(&Envoy::new(config, limiter)).await;
    let body =
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}"#;
    let (status, reply) = post(address, body).await;
    let problem: Value = serde_json::from_str(&reply).unwrap();
    assert_eq!((status, &problem["title"]), (503, &json!("The store cannot answer")));
}

#[tokio::test]
async fn the_limits_in_force_are_shown() {
    let service = Service::new(LIMITS);
    let address = serve(&service.envoy).await;
    let reply = web::http1(address).await.get("/rlconfig").await;
    let text = String::from_utf8(reply.body.to_vec()).unwrap();
    assert!(text.starts_with("shop.user: unit=MINUTE requests_per_unit=1, quota: 1/min sliding-buckets(30), policy: envoy.shop.user-"), "{text}");
    assert!(
        text.ends_with("shop.open: unlimited, shadow_mode: false, quota_mode: false\n"),
        "{text}"
    );
}
