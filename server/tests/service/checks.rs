//! Checks, looks and resets.

use plimsoll_testing::shapes::{Wrong, word_of_rust, wrong_shapes};
use serde_json::json;

use crate::support::{Service, requests_are_described, send};

#[test]
fn the_default_config_admits_five_units_in_ten_seconds() {
    let service = Service::start(&[]);
    let start = std::time::Instant::now();
    for remaining in (0..5).rev() {
        let reply = service.check("demo", "alice", 1);
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("ratelimit-policy"), Some("\"demo\";q=5;w=10"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(&*remaining.to_string()));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let charge = &reply.json()["charges"][0];
        assert_eq!((&charge["remaining"], &charge["granted"]), (&json!(remaining), &json!(1)));
    }
    let reply = service.check("demo", "alice", 1);
    // At most this time has passed since the first unit was spent.
    let passed = start.elapsed().as_secs_f64();
    assert_eq!(reply.status, 429);
    let seconds: f64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((10.0 - passed..=10.0).contains(&seconds), "{seconds} after {passed}");
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("0"));
    let document = reply.json();
    let problem = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    assert_eq!(document["type"], problem);
    assert_eq!(document["violated-policies"], json!(["demo"]));
    let wait = document["retry_after"].as_f64().unwrap();
    assert!((10.0 - passed..=10.0).contains(&wait), "{wait} after {passed}");
    // Another key has its own units.
    assert_eq!(service.check("demo", "bob", 5).status, 200);
}

#[test]
fn a_denial_says_what_is_left_in_its_body_and_its_headers() {
    let limits = "policies = { day = '50/day', shadow = '50/day', other = '60/day' }";
    let (service, _folder) = start_with_limits(limits);
    let body = |cost: u64| {
        let charges = ["day", "other", "shadow"].map(|policy| {
            json!({"policy": policy, "key": "alice", "cost": cost, "shadow": policy == "shadow"})
        });
        json!({"charges": charges}).to_string()
    };
    assert_eq!(service.post("/v1/check", &body(3)).status, 200);
    for (path, status) in [("/v1/check", 429), ("/v1/reserve", 429), ("/v1/peek", 200)] {
        let denied = service.post(path, &body(48));
        let left = |index: usize| denied.json()["charges"][index]["remaining"].as_u64().unwrap();
        assert_eq!((denied.status, [0, 1, 2].map(left)), (status, [47, 57, 47]), "{path}");
        let header = denied.header("ratelimit").unwrap();
        assert!(
            header.starts_with("\"day\";r=47;") && header.contains("\"other\";r=57;"),
            "{header}"
        );
        assert_eq!(denied.header("x-ratelimit-remaining"), Some("47"), "{path}");
    }
}

#[test]
fn all_charges_are_admitted_or_none_is_spent() {
    let limits = "policies = { hour = '3/h token-bucket(3)', day = '100/day' }";
    let (service, _folder) = start_with_limits(limits);
    let body = |cost: u64| {
        json!({"charges": [
            {"policy": "day", "key": "alice", "cost": cost},
            {"policy": "hour", "key": "alice", "cost": 3},
        ]})
        .to_string()
    };
    assert_eq!(service.post("/v1/check", &body(10)).status, 200);
    let denied = service.post("/v1/check", &body(10));
    assert_eq!(denied.status, 429);
    let outcomes = denied.json()["charges"].clone();
    assert_eq!(outcomes[0]["outcome"], "not_charged");
    assert_eq!(outcomes[0]["remaining"], 90);
    assert_eq!(outcomes[1]["outcome"], "denied");
    assert_eq!(denied.json()["violated-policies"], json!(["hour"]));
    assert_eq!(service.post("/v1/reserve", &body(10)).status, 429);
    // The broad limit has lost nothing by the denials.
    let peeked = service.post("/v1/peek", &body(10));
    assert_eq!((peeked.status, &peeked.json()["allowed"]), (200, &json!(false)));
    assert_eq!(peeked.json()["charges"][0]["remaining"], 90);
}

#[test]
fn charges_of_the_same_key_are_summed_and_answered_one_by_one() {
    let service = Service::start(&[]);
    let charge = json!({"policy": "demo", "key": "alice", "cost": 2});
    let body = json!({"charges": [charge, charge]}).to_string();
    let reply = service.post("/v1/check", &body);
    let charges = reply.json()["charges"].clone();
    assert_eq!(charges.as_array().unwrap().len(), 2);
    assert_eq!((&charges[0]["remaining"], &charges[1]["remaining"]), (&json!(1), &json!(1)));
    assert_eq!(charges[1]["granted"], 4);
}

#[test]
fn a_look_a_shadow_and_a_cost_of_zero_spend_nothing() {
    let service = Service::start(&[]);
    let body = json!({"charges": [{"policy": "demo", "key": "alice", "cost": 4}]}).to_string();
    for _ in 0..3 {
        let reply = service.post("/v1/peek", &body);
        assert_eq!(reply.json()["charges"][0]["remaining"], 5);
    }
    assert_eq!(service.check("demo", "alice", 0).json()["charges"][0]["remaining"], 5);
    assert_eq!(service.post("/v1/check", &body).status, 200);
    let shadow =
        json!({"charges": [{"policy": "demo", "key": "alice", "cost": 4, "shadow": true}]});
    let reply = service.post("/v1/check", &shadow.to_string());
    assert_eq!((reply.status, &reply.json()["charges"][0]["outcome"]), (200, &json!("would_deny")));
}

#[test]
fn a_cost_that_never_fits_is_forbidden_and_has_no_wait() {
    let service = Service::start(&[]);
    for cost in [6, u64::MAX] {
        let reply = service.check("demo", "alice", cost);
        assert_eq!((reply.status, reply.header("retry-after")), (403, None), "{cost}");
        assert_eq!(reply.json()["retry_after"], json!(null));
    }
    assert_eq!(service.check("demo", "alice", 5).status, 200);
}

#[test]
fn a_reset_gives_a_key_all_of_its_units() {
    let service = Service::start(&[]);
    assert_eq!(service.check("demo", "alice", 5).status, 200);
    assert_eq!(service.check("demo", "alice", 1).status, 429);
    let body = json!({"keys": [
        {"policy": "demo", "key": "alice"}, {"policy": "demo", "key": "nobody"},
    ]});
    assert_eq!(service.post("/v1/reset", &body.to_string()).json(), json!({"keys": 1}));
    assert_eq!(service.check("demo", "alice", 5).status, 200);
}

/// A body of wrong types is refused with all of its mistakes, in words for people who do not know Rust.
#[test]
fn bodies_of_wrong_types_are_refused_with_all_mistakes_in_words() {
    let service = Service::start(&[]);
    let charge = json!({"policy": "demo", "key": "alice", "cost": 1, "shadow": false});
    let charges = json!({"charges": [charge], "on_failure": "deny"});
    let mut refused = 0;
    for (path, body) in [
        ("/v1/check", charges),
        ("/v1/reset", json!({"keys": [{"policy": "demo", "key": "alice"}]})),
        ("/v1/slots/release", json!({"slot": "text"})),
        ("/v1/settle", json!({"receipt": "text", "units": {"demo": 1}})),
    ] {
        let mut last: Option<(Wrong, String)> = None;
        for wrong in wrong_shapes(&body) {
            let document = wrong.in_document(&body);
            let reply = service.post(path, &document.to_string());
            let detail = reply.json()["detail"].as_str().unwrap_or_default().to_owned();
            // A value of the right type that is not allowed is found later, and one at a time.
            if reply.status != 422 || !detail.contains('`') {
                continue;
            }
            assert_eq!(word_of_rust(&detail), None, "{path}: {wrong:?}: {detail}");
            refused += 1;
            if let Some((other, before)) = last.filter(|(it, _)| it.is_apart_from(&wrong)) {
                let both = service.post(path, &other.in_document(&document).to_string());
                let both = both.json()["detail"].as_str().unwrap_or_default().to_owned();
                let has_all = [&before, &detail].iter().all(|it| both.contains(&***it));
                assert!(has_all, "{path}: {wrong:?} and {other:?}: {both}");
            }
            last = Some((wrong, detail));
        }
    }
    assert!(refused > 100, "{refused}");
    for list in ["[]", " [[]]", r#"[[{"policy": "demo", "key": "alice"}], null]"#] {
        let reply = service.post("/v1/check", list);
        let expected =
            (422, "found a list, allowed is a table with the fields `charges`, `on_failure`");
        assert_eq!((reply.status, &*reply.field("detail")), expected);
    }
}

#[test]
fn an_unknown_policy_has_a_nearest_spelling() {
    let (service, _folder) = start_with_limits("policies = { search = '5/s', orders = '5/s' }");
    let reply = service.check("serach", "alice", 1);
    assert_eq!((reply.status, reply.field("nearest")), (404, "search".to_owned()));
    assert_eq!(reply.field("allowed"), "orders, search");
    let reply = service.check("completely-different", "alice", 1);
    assert_eq!((reply.status, &reply.json()["nearest"]), (404, &json!(null)));
}

#[test]
fn a_changed_file_acts_without_a_restart_and_a_wrong_one_changes_nothing() {
    let (service, folder) = start_with_limits("policies.api = '1/h'");
    let file = folder.join("limits.toml");
    assert_eq!(service.check("api", "alice", 2).status, 403);
    std::fs::write(&file, "policies.api = '1/fortnight'").unwrap();
    until(|| service.log().contains("fortnight"));
    assert_eq!(service.check("api", "alice", 2).status, 403);
    std::fs::write(&file, "policies.api = '2/h'").unwrap();
    until(|| service.check("api", "alice", 2).status == 200);
}

#[test]
fn the_document_and_the_health_are_served() {
    let service = Service::start(&[]);
    let document = service.get("/openapi.json");
    assert_eq!(document.status, 200);
    assert_eq!(document.json()["openapi"], "3.1.0");
    requests_are_described();
    assert_eq!(service.get("/healthcheck").text(), "OK\n");
    let metrics = service.get("/metrics").text();
    assert!(metrics.contains("plimsoll_server_connections{listener=\"http\"} 1"), "{metrics}");
    // The metrics count the decision of the service.
    assert_eq!(service.check("demo", "alice", 1).status, 200);
    let metrics = service.get("/metrics").text();
    let counted = "plimsoll_decisions_total{policy=\"demo\",outcome=\"allowed\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
    for (method, path) in [("GET", "/v1/check"), ("DELETE", "/openapi.json"), ("POST", "/metrics")]
    {
        assert_eq!(send(&service.http, method, path, &[], b"").status, 405, "{method} {path}");
    }
    assert_eq!(service.get("/nothing").status, 404);
}

/// Starts a service with limits in a file.
pub(crate) fn start_with_limits(limits: &str) -> (Service, std::path::PathBuf) {
    let folder = plimsoll_testing::servers::directory();
    let file = folder.join("limits.toml");
    std::fs::write(&file, limits).unwrap();
    let service = Service::start(&["--config", file.to_str().unwrap()]);
    (service, folder)
}

/// Waits until a condition holds.
pub(crate) fn until(condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < plimsoll_testing::servers::PATIENCE, "it does not become true");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
