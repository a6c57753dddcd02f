//! The route `/json`.

use std::net::SocketAddr;

use plimsoll::{Limiter, Resilience, error::ErrorKind};
use plimsoll_server::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use plimsoll_testing::{seed, web};
use proptest::{prelude::*, test_runner::Config};
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

/// Asks about a request in JSON.
pub(crate) async fn ask(envoy: &Envoy, body: &str) -> (u16, Value) {
    let (status, reply) = post(serve(envoy).await, body).await;
    (status, serde_json::from_str(&reply).unwrap())
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

/// Returns the answers to a body with each of these values in the place of `@`, each by a new service.
async fn answers(body: &str, values: &[&str]) -> Vec<(u16, Value)> {
    let mut answers = Vec::new();
    for value in values {
        let service = Service::new(LIMITS);
        answers.push(ask(&service.envoy, &body.replace('@', value)).await);
    }
    answers
}

const THREE: [&str; 8] = ["3", "3.0", "3e0", "30e-1", "0.3e1", r#""3""#, r#""3.0""#, r#""3e0""#];

#[tokio::test]
async fn each_number_has_each_form() {
    let whole = |fields: &str| {
        format!(
            r#"{{"domain": "shop", "descriptors": [{{"entries": [{{"key": "x"}}], {fields}}}]}}"#
        )
    };
    let limit = r#""limit": {"requestsPerUnit": 10, "unit": "HOUR"}"#;
    let of_request = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "x"}],
        "limit": {"requestsPerUnit": 10, "unit": "HOUR"}}], "hitsAddend": @}"#;
    let of_descriptor = whole(&format!("\"hitsAddend\": @, {limit}"));
    for (body, null) in [(of_request, 9), (&of_descriptor, 9)] {
        for body in [body.to_owned(), body.replace("hitsAddend", "hits_addend")] {
            for (status, reply) in answers(&body, &THREE).await {
                assert_eq!(
                    (status, &reply["statuses"][0]["limitRemaining"]),
                    (200, &json!(7)),
                    "{body} {reply}"
                );
            }
            let (_, reply) = &answers(&body, &["null"]).await[0];
            assert_eq!(reply["statuses"][0]["limitRemaining"], null, "{body}");
        }
    }
    // A look is not the default.
    for (_, reply) in answers(&of_descriptor, &["0", "0.0", "0e5", r#""0""#]).await {
        assert_eq!(reply["statuses"][0]["limitRemaining"], 10);
    }
    for name in ["requestsPerUnit", "requests_per_unit"] {
        let body = whole(&format!("\"limit\": {{\"{name}\": @, \"unit\": \"HOUR\"}}"));
        for (status, reply) in answers(&body, &THREE).await {
            let limit = &reply["statuses"][0]["currentLimit"]["requestsPerUnit"];
            assert_eq!((status, limit), (200, &json!(3)), "{reply}");
        }
        let (status, reply) = &answers(&body, &["null"]).await[0];
        assert_eq!(
            (*status, &reply["statuses"][0]["currentLimit"]),
            (429, &json!({"unit": "HOUR"}))
        );
    }
    let body = whole(r#""limit": {"requestsPerUnit": 10, "unit": @}"#);
    for (status, reply) in answers(&body, &[r#""HOUR""#, "3", "3.0", "3e0"]).await {
        let unit = &reply["statuses"][0]["currentLimit"]["unit"];
        assert_eq!((status, unit), (200, &json!("HOUR")), "{reply}");
    }
    for (status, reply) in answers(&body, &["null", "0", r#""UNKNOWN""#, "77"]).await {
        assert_eq!(status, 400, "{reply}");
        assert!(reply["detail"].as_str().unwrap().contains("allowed are SECOND"), "{reply}");
    }
}

#[tokio::test]
async fn null_is_the_default_of_each_field() {
    let user = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "a"}]"#;
    for (with_null, without) in [
        (r#"{"domain": null, "descriptors": []}"#.to_owned(), r#"{"descriptors": []}"#.to_owned()),
        (r#"{"domain": "shop", "descriptors": null}"#.into(), r#"{"domain": "shop"}"#.into()),
        (
            r#"{"domain": "shop", "descriptors": [{"entries": null}]}"#.into(),
            r#"{"domain": "shop", "descriptors": [{}]}"#.into(),
        ),
        (
            r#"{"domain": "shop", "descriptors": [{"entries": [{"key": null, "value": null}]}]}"#
                .into(),
            r#"{"domain": "shop", "descriptors": [{"entries": [{}]}]}"#.into(),
        ),
        (format!("{user}, \"limit\": null}}]}}"), format!("{user}}}]}}")),
        (
            format!("{user}, \"isNegativeHits\": null}}]}}"),
            format!("{user}, \"is_negative_hits\": false}}]}}"),
        ),
    ] {
        let (one, other) = (answers(&with_null, &[""]).await, answers(&without, &[""]).await);
        assert_eq!(one, other, "{with_null}");
    }
    // Hits that are given back change nothing.
    let body = format!("{user}, \"isNegativeHits\": @}}]}}");
    let codes: Vec<_> =
        answers(&body, &["true", "false"]).await.into_iter().map(|it| it.1).collect();
    assert_eq!(codes[0]["statuses"][0]["limitRemaining"], u32::MAX);
    assert_eq!(codes[1]["statuses"][0]["limitRemaining"], Value::Null);
}

#[tokio::test]
async fn a_body_with_a_mistake_is_a_bad_request_that_says_why() {
    let service = Service::new(LIMITS);
    let address = serve(&service.envoy).await;
    let of_request =
        |fields: &str| format!(r#"{{"domain": "shop", "descriptors": [{{}}], {fields}}}"#);
    let of_descriptor =
        |fields: &str| format!(r#"{{"domain": "shop", "descriptors": [{{}}, {{{fields}}}]}}"#);
    let mut wrong = Vec::new();
    for (body, why) in [
        (String::new(), &["EOF"][..]),
        ("7".into(), &["found the number 7"]),
        ("null".into(), &["found"]),
        ("{}".into(), &["the domain of the request is empty"]),
        (r#"{"domain": "shop"}"#.into(), &["the request has no descriptors"]),
        (r#"{"domian": "shop"}"#.into(), &["`domian`", "`domain`"]),
        (r#"{"domain": 7}"#.into(), &["domain", "7"]),
        (r#"{"descriptors": {}}"#.into(), &["descriptors"]),
        (r#"{"descriptors": [null]}"#.into(), &["descriptors[0]"]),
        (of_request(r#""hitsAddend": -1"#), &["hitsAddend", "a whole number of 0 or more"]),
        (of_request(r#""hitsAddend": 1.5"#), &["hitsAddend", "a whole number of 0 or more"]),
        (of_request(r#""hits_addend": 4294967296"#), &["`hitsAddend` is 4294967296", "4294967295"]),
        (of_request(r#""hitsAddend": 1, "hits_addend": 1"#), &["twice"]),
        (of_descriptor(r#""hitsAddend": "x""#), &["descriptors[1].hitsAddend", "a whole number"]),
        (
            of_descriptor(r#""hitsAddend": "1e-1""#),
            &["descriptors[1].hitsAddend", "a whole number"],
        ),
        (of_descriptor(r#""hitsAddend": """#), &["descriptors[1].hitsAddend", "a whole number"]),
        (of_descriptor(r#""hitsAddend": {"value": 1}"#), &["descriptors[1].hitsAddend"]),
        (of_descriptor(r#""hitsAddend": 18446744073709551616"#), &["descriptors[1].hitsAddend"]),
        (of_descriptor(r#""isNegativeHits": "true""#), &["descriptors[1].isNegativeHits"]),
        (of_descriptor(r#""hits": 1"#), &["`hits`", "`hitsAddend`"]),
        (of_descriptor(r#""entries": [{"key": 1}]"#), &["descriptors[1].entries[0].key"]),
        (of_descriptor(r#""entries": "a""#), &["descriptors[1].entries"]),
        (of_descriptor(r#""limit": 5"#), &["descriptors[1].limit"]),
        (of_descriptor(r#""limit": {"requestsPerUnit": 4294967296}"#), &["`requestsPerUnit` is"]),
        (of_descriptor(r#""limit": {"unit": "HOURS"}"#), &["allowed are SECOND, MINUTE"]),
        (of_descriptor(r#""limit": {"unit": false}"#), &["descriptors[1].limit.unit", "SECOND"]),
    ] {
        let (status, reply) = post(address, &body).await;
        let problem: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!((status, &problem["status"]), (400, &json!(400)), "{body}");
        let detail = problem["detail"].as_str().unwrap();
        if !why.iter().all(|part| detail.contains(part)) {
            wrong.push(format!("{body}: {detail}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let long = format!(r#"{{"domain": {{"{}": 1}}}}"#, "x".repeat(100_000));
    assert!(post(address, &long).await.1.len() < 300);
}

/// Returns values with the names of the fields, so that some are nearly right.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..12_u64).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(vec!["shop", "user", "HOUR", "1e3", "-0"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 4, |inner| {
        let names = vec![
            "domain",
            "descriptors",
            "hitsAddend",
            "hits_addend",
            "entries",
            "limit",
            "isNegativeHits",
            "key",
            "value",
            "requestsPerUnit",
            "unit",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(prop::sample::select(names), inner, 0..6)
                .prop_map(|map| map.into_iter().map(|(name, it)| (name.to_owned(), it)).collect()),
        ]
    })
}

#[test]
fn random_bodies_are_answered() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (service, address) = runtime.block_on(async {
        let service = Service::new(LIMITS);
        let address = serve(&service.envoy).await;
        (service, address)
    });
    let fields = (value(), value(), value());
    seed::property("json", Config::default(), fields, |(entries, limit, hits)| {
        let descriptor = json!({ "entries": entries, "limit": limit, "hitsAddend": hits });
        for body in [
            json!({ "domain": "shop", "descriptors": [descriptor] }),
            json!({ "domain": "shop", "descriptors": [{}], "hitsAddend": hits }),
            entries.clone(),
        ] {
            let (status, reply) = runtime.block_on(post(address, &body.to_string()));
            prop_assert!([200, 400, 429].contains(&status), "{} {}", body, reply);
        }
        Ok(())
    });
    drop(service);
}

#[tokio::test]
async fn a_store_that_fails_is_no_mistake_of_the_client() {
    let config = EnvoyConfig::from_text("limits.yaml", LIMITS, EnvoyOptions::default()).unwrap();
    let limiter = Limiter::with_resilience(Broken(ErrorKind::Unavailable), Resilience::none());
    let address = serve(&Service::over(config, limiter).envoy).await;
    let body =
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}"#;
    let (status, reply) = post(address, body).await;
    let problem: Value = serde_json::from_str(&reply).unwrap();
    assert_eq!((status, &problem["title"]), (503, &json!("The store cannot answer")));
}
