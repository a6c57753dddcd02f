//! Slots of concurrency limits.

use std::{fs, thread::sleep, time::Duration};

use plimsoll_testing::servers::directory;
use serde_json::{Value, json};

use crate::{
    checks::start_with_limits,
    support::{Reply, Service, send},
};

const LIMITS: &str = "policies = { exports = '2 concurrent expires(30s)', api = '100/h' }";

fn acquire(service: &Service, key: &str) -> Reply {
    let body = json!({"charges": [{"policy": "exports", "key": key}]}).to_string();
    service.post("/v1/slots/acquire", &body)
}

fn with_slot(service: &Service, path: &str, slot: &str) -> Reply {
    service.post(path, &json!({"slot": slot}).to_string())
}

#[test]
fn slots_are_held_until_they_are_released() {
    let (service, _folder) = start_with_limits(LIMITS);
    let (first, second) = (acquire(&service, "alice"), acquire(&service, "alice"));
    assert_eq!((first.status, second.status), (200, 200));
    assert_eq!(
        first.header("ratelimit-policy").unwrap(),
        "\"exports\";q=2;qu=\"concurrent-requests\""
    );
    let denied = acquire(&service, "alice");
    assert_eq!(denied.status, 429);
    assert_eq!(acquire(&service, "bob").status, 200);
    let released = with_slot(&service, "/v1/slots/release", &first.field("slot"));
    assert_eq!((released.status, released.json()), (200, json!({"units": 1})));
    assert_eq!(with_slot(&service, "/v1/slots/release", &first.field("slot")).status, 409);
    assert_eq!(acquire(&service, "alice").status, 200);
    assert_eq!(acquire(&service, "alice").status, 429);
}

#[test]
fn a_slot_expires_unless_it_is_renewed() {
    // Between two renewals, the machine may stand still for 2 s.
    let (service, _folder) = start_with_limits(&LIMITS.replace("30s", "4s"));
    let (lost, kept) = (acquire(&service, "alice"), acquire(&service, "alice"));
    let lost = lost.field("slot");
    let mut slot = kept.field("slot");
    for _ in 0..4 {
        sleep(Duration::from_millis(1_100));
        let renewed = with_slot(&service, "/v1/slots/renew", &slot);
        assert_eq!(renewed.status, 200, "{}", renewed.text());
        // The old one is used up.
        assert_eq!(with_slot(&service, "/v1/slots/renew", &slot).status, 409);
        assert_eq!(with_slot(&service, "/v1/slots/release", &slot).status, 409);
        slot = renewed.field("slot");
    }
    // 4.4 s later, one is held, and the other has expired.
    let third = acquire(&service, "alice");
    assert_eq!(third.status, 200);
    assert_eq!(acquire(&service, "alice").status, 429);
    for path in ["/v1/slots/renew", "/v1/slots/release"] {
        assert_eq!(with_slot(&service, path, &lost).status, 410);
    }
    assert_eq!(with_slot(&service, "/v1/slots/release", &slot).status, 200);
    assert_eq!(acquire(&service, "alice").status, 200);
}

#[test]
fn a_slot_and_a_charge_are_decided_together() {
    let (service, _folder) = start_with_limits(LIMITS);
    let body = |cost: u64| {
        json!({"charges": [
            {"policy": "exports", "key": "alice"}, {"policy": "api", "key": "alice", "cost": cost},
        ]})
        .to_string()
    };
    let used = |service: &Service, policy: &str| -> Value {
        let body = json!({"charges": [{"policy": policy, "key": "alice", "cost": 0}]}).to_string();
        service.post("/v1/peek", &body).json()["charges"][0]["remaining"].clone()
    };
    let slot = service.post("/v1/slots/acquire", &body(40)).field("slot");
    // The other limit refuses, so no slot is taken.
    assert_eq!(service.post("/v1/slots/acquire", &body(90)).status, 429);
    assert_eq!((used(&service, "exports"), used(&service, "api")), (json!(1), json!(60)));
    // A release frees the slot, and not what was spent.
    assert_eq!(with_slot(&service, "/v1/slots/release", &slot).json(), json!({"units": 1}));
    assert_eq!((used(&service, "exports"), used(&service, "api")), (json!(2), json!(60)));
}

#[test]
fn work_in_flight_and_units_are_not_mixed_up() {
    let (service, _folder) = start_with_limits(LIMITS);
    let charge =
        |policy: &str| json!({"charges": [{"policy": policy, "key": "alice"}]}).to_string();
    for path in ["/v1/check", "/v1/reserve"] {
        let reply = service.post(path, &charge("exports"));
        assert_eq!(
            (reply.status, reply.field("allowed")),
            (422, "POST /v1/slots/acquire".to_owned())
        );
    }
    assert_eq!(service.post("/v1/slots/acquire", &charge("api")).status, 422);
    assert_eq!(service.post("/v1/peek", &charge("exports")).status, 200);
}

#[test]
fn a_policy_that_is_switched_off_has_no_slot() {
    let file = directory().join("limits.toml");
    fs::write(&file, LIMITS).unwrap();
    let variables = [("PLIMSOLL_ADMIN_TOKEN", "token-of-the-operator-77")];
    let service = Service::start_with(&["--config", file.to_str().unwrap()], &variables);
    let json_type = ("content-type", "application/json");
    let headers = [json_type, ("authorization", "Bearer token-of-the-operator-77")];
    let body = br#"{"policy": "exports", "quota": "off", "reason": "a test"}"#;
    let reply = send(&service.admin, "PUT", "/api/overrides", &headers, body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let both =
        json!({"charges": [{"policy": "exports", "key": "a"}, {"policy": "api", "key": "a"}]});
    for body in
        [both.to_string(), json!({"charges": [{"policy": "exports", "key": "a"}]}).to_string()]
    {
        let reply = service.post("/v1/slots/acquire", &body);
        assert_eq!((reply.status, reply.json().get("slot")), (200, None), "{}", reply.text());
    }
}
