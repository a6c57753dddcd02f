//! Random bodies: no request is answered with 500, or not at all.

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};

use crate::support::send;

const PATHS: [&str; 9] = [
    "/v1/check",
    "/v1/peek",
    "/v1/reserve",
    "/v1/settle",
    "/v1/refund",
    "/v1/reset",
    "/v1/slots/acquire",
    "/v1/slots/renew",
    "/v1/slots/release",
];

/// Returns values with the names of the API and others, so that some are nearly right.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..8_u64).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(vec![
            "demo", "bucket", "slots", "leased", "alice", "a.b", "deny", "allow"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        let names = vec![
            "charges",
            "policy",
            "key",
            "cost",
            "shadow",
            "on_failure",
            "receipt",
            "units",
            "slot",
            "keys",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::hash_map(prop::sample::select(names), inner, 0..6)
                .prop_map(|map| map.into_iter().map(|(name, it)| (name.to_owned(), it)).collect()),
        ]
    })
}

/// Returns a request that is right, except for its numbers and texts.
fn charges() -> impl Strategy<Value = Value> {
    let policies = vec!["demo", "bucket", "slots", "leased"];
    let charge =
        (prop::sample::select(policies), ".{0,20}", any::<u64>(), any::<u8>(), any::<bool>());
    let charge = charge.prop_map(|(policy, key, cost, shift, shadow)| {
        json!({"policy": policy, "key": key, "cost": cost >> (shift % 64), "shadow": shadow})
    });
    prop::collection::vec(charge, 0..34).prop_map(|charges| json!({"charges": charges}))
}

const LIMITS: &str = "policies = { demo = '5/10s', bucket = '5/s token-bucket(3)', slots = '2 concurrent', \
                      leased = '60000/min leased(500ms)' }";

fn run(cases: u32, body: impl Strategy<Value = Vec<u8>>) {
    // Each test ends its own service. One in a `static` would outlive the tests.
    let (service, folder) = crate::checks::start_with_limits(LIMITS);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let path = prop::sample::select(PATHS.to_vec());
    let result = runner.run(&(path, body), |(path, body)| {
        let headers = [("content-type", "application/json")];
        let reply = send(&service.http, "POST", path, &headers, &body);
        prop_assert!(reply.status < 500, "{} {}", path, reply.text());
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    assert_eq!(service.get("/healthcheck").status, 200);
    assert!(!service.log().contains("panicked"), "{}", service.log());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn random_bytes_are_answered() {
    run(500, prop::collection::vec(any::<u8>(), 0..300));
}

#[test]
fn random_values_are_answered() {
    run(1_000, value().prop_map(|value| value.to_string().into_bytes()));
}

#[test]
fn random_charges_are_answered() {
    run(1_000, charges().prop_map(|value| value.to_string().into_bytes()));
}
