//! Receipts: settled or refunded once, by the client that has them.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

use crate::{checks::start_with_limits, support::Service};

fn remaining(service: &Service, policy: &str, key: &str) -> u64 {
    service.check(policy, key, 0).json()["charges"][0]["remaining"].as_u64().unwrap()
}

fn reserve(service: &Service, policy: &str, key: &str, cost: u64) -> String {
    let body = json!({"charges": [{"policy": policy, "key": key, "cost": cost}]}).to_string();
    let reply = service.post("/v1/reserve", &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.field("receipt")
}

fn settle(service: &Service, policy: &str, receipt: &str, units: u64) -> u16 {
    let body = json!({"receipt": receipt, "units": {policy: units}}).to_string();
    service.post("/v1/settle", &body).status
}

fn refund(service: &Service, receipt: &str) -> u16 {
    service.post("/v1/refund", &json!({"receipt": receipt}).to_string()).status
}

#[test]
fn units_are_refunded_once_under_each_algorithm() {
    let algorithms = plimsoll_testing::algorithms::each(10, 100);
    let policies: Vec<_> =
        (0..algorithms.len()).map(|i| format!("p{i} = '100/h {}'", algorithms[i])).collect();
    let (service, _folder) = start_with_limits(&format!("[policies]\n{}", policies.join("\n")));
    for (i, algorithm) in algorithms.iter().enumerate() {
        let policy = format!("p{i}");
        let kept = reserve(&service, &policy, "alice", 10);
        let refunded = reserve(&service, &policy, "alice", 30);
        let settled = reserve(&service, &policy, "alice", 20);
        assert_eq!(remaining(&service, &policy, "alice"), 40, "{algorithm}");
        let reply = service.post("/v1/refund", &json!({"receipt": refunded}).to_string());
        assert_eq!(reply.json(), json!({"units": 30}), "{algorithm}");
        assert_eq!(refund(&service, &refunded), 409, "{algorithm}");
        assert_eq!(settle(&service, &policy, &refunded, 0), 409, "{algorithm}");
        assert_eq!(remaining(&service, &policy, "alice"), 70, "{algorithm}");
        assert_eq!(settle(&service, &policy, &settled, 5), 200, "{algorithm}");
        assert_eq!(settle(&service, &policy, &settled, 5), 409, "{algorithm}");
        assert_eq!(refund(&service, &settled), 409, "{algorithm}");
        assert_eq!(remaining(&service, &policy, "alice"), 85, "{algorithm}");
        // Settling upward charges the difference.
        assert_eq!(settle(&service, &policy, &kept, 50), 200, "{algorithm}");
        assert_eq!(remaining(&service, &policy, "alice"), 45, "{algorithm}");
    }
}

#[test]
fn a_receipt_that_is_used_again_is_counted_under_a_policy_of_its_own() {
    let redis = plimsoll_testing::servers::Server::start();
    let url = redis.url();
    for flags in [&["--log", "debug"][..], &["--log", "debug", "--redis", &url]] {
        let service = Service::start(flags);
        let receipt = reserve(&service, "demo", "alice", 3);
        assert_eq!(refund(&service, &receipt), 200);
        for _ in 0..3 {
            assert_eq!(refund(&service, &receipt), 409);
        }
        let metrics = service.get("/metrics").text();
        let denied = "plimsoll_decisions_total{policy=\"plimsoll.receipts\",outcome=\"denied\"} 3";
        assert!(metrics.lines().any(|line| line == denied), "{metrics}");
        assert!(!service.log().contains(&receipt), "{}", service.log());
    }
}

#[test]
fn a_settlement_by_policy_leaves_the_others_as_they_are() {
    let limits = "policies = { tokens = '1000/h', requests = '10/h' }";
    let (service, _folder) = start_with_limits(limits);
    let body = json!({"charges": [
        {"policy": "tokens", "key": "alice", "cost": 500},
        {"policy": "requests", "key": "alice"},
    ]});
    let receipt = service.post("/v1/reserve", &body.to_string()).field("receipt");
    let wrong = json!({"receipt": receipt, "units": {"token": 100}}).to_string();
    let reply = service.post("/v1/settle", &wrong);
    assert_eq!((reply.status, reply.field("allowed")), (422, "tokens, requests".to_owned()));
    let body = json!({"receipt": receipt, "units": {"tokens": 120}}).to_string();
    assert_eq!(service.post("/v1/settle", &body).status, 200);
    assert_eq!(remaining(&service, "tokens", "alice"), 880);
    assert_eq!(remaining(&service, "requests", "alice"), 9);
}

#[test]
fn a_forged_receipt_is_refused() {
    let service = Service::start(&[]);
    let receipt = reserve(&service, "demo", "alice", 3);
    let (content, signature) = receipt.split_once('.').unwrap();
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(content).unwrap()).unwrap();
    assert!(text.contains("\"u\":3"), "{text}");
    let forged = URL_SAFE_NO_PAD.encode(text.replace("\"u\":3", "\"u\":5"));
    let other_key = URL_SAFE_NO_PAD.encode(text.replace("alice", "mallo"));
    let other_number = URL_SAFE_NO_PAD.encode(text.replacen("\"n\":\"", "\"n\":\"1", 1));
    let slot = URL_SAFE_NO_PAD.encode(text.replace("reservation", "slot"));
    let mut flipped = URL_SAFE_NO_PAD.decode(signature).unwrap();
    flipped[0] ^= 1;
    let flipped = URL_SAFE_NO_PAD.encode(flipped);
    for wrong in [
        format!("{forged}.{signature}"),
        format!("{other_key}.{signature}"),
        format!("{other_number}.{signature}"),
        format!("{slot}.{signature}"),
        format!("{content}.{flipped}"),
        format!("{content}."),
        format!("{content}.{}", &signature[..20]),
        content.to_owned(),
        format!(".{signature}"),
        String::new(),
        "a.b".to_owned(),
        // A receipt of another process has another secret.
        reserve(&Service::start(&[]), "demo", "alice", 3),
    ] {
        assert_eq!(refund(&service, &wrong), 422, "{wrong}");
        assert_eq!(settle(&service, "demo", &wrong, 0), 422, "{wrong}");
    }
    // A reservation is no slot.
    let release = json!({"slot": receipt}).to_string();
    assert_eq!(service.post("/v1/slots/release", &release).status, 422);
    // Nothing of this has used up the true one.
    assert_eq!(remaining(&service, "demo", "alice"), 2);
    assert_eq!(refund(&service, &receipt), 200);
    assert_eq!(remaining(&service, "demo", "alice"), 5);
}

#[test]
fn an_expired_receipt_is_refused() {
    let service = Service::start(&["--receipt-lifetime", "3s"]);
    let (early, late) =
        (reserve(&service, "demo", "alice", 1), reserve(&service, "demo", "alice", 1));
    assert_eq!(refund(&service, &early), 200);
    std::thread::sleep(std::time::Duration::from_millis(3_100));
    assert_eq!(refund(&service, &late), 410);
    assert_eq!(settle(&service, "demo", &late, 5), 410);
    // It was used before, and has expired since.
    assert_eq!(refund(&service, &early), 410);
    assert_eq!(remaining(&service, "demo", "alice"), 4);
}

#[test]
fn many_at_once_use_a_receipt_once() {
    let service = Service::start(&[]);
    let receipt = reserve(&service, "demo", "alice", 1);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..16).map(|_| scope.spawn(|| refund(&service, &receipt))).collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 15, "{statuses:?}");
}

#[test]
fn a_receipt_of_an_earlier_process_finds_no_units_of_others() {
    let secret = [("PLIMSOLL_RECEIPT_SECRET", "the-same-secret-for-both")];
    let receipt = reserve(&Service::start_with(&[], &secret), "demo", "alice", 3);
    let service = Service::start_with(&[], &secret);
    assert_eq!(service.check("demo", "alice", 4).status, 200);
    assert_eq!(refund(&service, &receipt), 410);
    assert_eq!(remaining(&service, "demo", "alice"), 1);
}

#[test]
fn the_units_of_a_receipt_follow_a_changed_quota() {
    let (service, folder) = start_with_limits("policies.api = '10/h'");
    let receipt = reserve(&service, "api", "alice", 4);
    std::fs::write(folder.join("limits.toml"), "policies.api = '20/min token-bucket(20)'").unwrap();
    crate::checks::until(|| remaining(&service, "api", "alice") == 20);
    // The new algorithm counts anew, so there is nothing of these units in it.
    assert_eq!(refund(&service, &receipt), 200);
    assert_eq!(remaining(&service, "api", "alice"), 20);
}

#[test]
fn a_receipt_of_the_longest_request_can_be_sent_back() {
    const MAX_BODY: usize = 64 * 1_024;
    let (service, _folder) = start_with_limits("policies = { a = '9/h', slots = '9 concurrent' }");
    // A control character has six bytes in JSON.
    for letter in ["k", "\u{1}"] {
        for (policy, reserve, give_back, name) in [
            ("a", "/v1/reserve", "/v1/settle", "receipt"),
            ("slots", "/v1/slots/acquire", "/v1/slots/release", "slot"),
        ] {
            let body = |letters: usize| {
                let key = |i: usize| format!("{i}{}", letter.repeat(letters));
                let charge = |i| json!({"policy": policy, "key": key(i)});
                json!({"charges": (0..32).map(charge).collect::<Vec<_>>()}).to_string()
            };
            let longest = (0..1_000).rev().find(|it| body(*it).len() <= MAX_BODY).unwrap();
            let reply = service.post(reserve, &body(longest));
            assert_eq!(reply.status, 200, "{}", reply.text());
            let mut body = json!({ name: reply.field(name) });
            if name == "receipt" {
                body["units"] = json!({ policy: 0 });
            }
            let reply = service.post(give_back, &body.to_string());
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
    }
}
