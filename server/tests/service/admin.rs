//! The admin listener: closed by default, with the page, its API, health and metrics.

use crate::support::{Reply, Service, exchange, send};

const JSON: (&str, &str) = ("content-type", "application/json");

fn api(service: &Service, token: Option<&str>, path: &str) -> Reply {
    let value = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> =
        value.as_deref().map(|value| ("authorization", value)).into_iter().collect();
    send(&service.admin, "GET", path, &headers, b"")
}

#[test]
fn no_client_is_an_operator_by_default() {
    let mut service = Service::start(&[]);
    for token in [None, Some(""), Some("0123456789abcdef0123456789abcdef")] {
        assert_eq!(api(&service, token, "/api/policies").status, 401, "{token:?}");
    }
    service.signal("INT");
    let (status, rest) = service.wait(plimsoll_testing::servers::PATIENCE);
    assert_eq!((status.code(), &*rest), (Some(0), ""));
    assert!(service.log().contains("PLIMSOLL_ADMIN_TOKEN"), "{}", service.log());
}

#[test]
fn the_token_of_the_settings_is_not_printed() {
    let token = "token-of-the-operator-77";
    let variables = [("PLIMSOLL_ADMIN_TOKEN", token)];
    let mut service = Service::start_with(&["--instance", "one"], &variables);
    assert_eq!(service.check("demo", "alice", 5).status, 200);
    assert_eq!(service.check("demo", "alice", 1).status, 429);
    assert_eq!(api(&service, Some(token), "/api/status").json()["instance"], "one");
    assert_eq!(api(&service, Some(token), "/api/policies").json()[0]["name"], "demo");
    assert_eq!(api(&service, Some("token-of-the-operator-7"), "/api/status").status, 401);
    // The keys of the HTTP API are found, and their denials are counted.
    let key = api(&service, Some(token), "/api/keys?key=alice");
    assert!(key.text().contains("\"remaining\":0"), "{}", key.text());
    let offenders = api(&service, Some(token), "/api/offenders?policy=demo").text();
    assert!(offenders.contains("\"#") && !offenders.contains("alice"), "{offenders}");
    // A policy that is switched off admits everything, and says so.
    let headers = [JSON, ("authorization", &*format!("Bearer {token}"))];
    let body = br#"{"policy": "demo", "quota": "off", "reason": "a test"}"#;
    let reply = send(&service.admin, "PUT", "/api/overrides", &headers, body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = service.check("demo", "alice", 1);
    let outcome = reply.json()["charges"][0]["outcome"].clone();
    assert_eq!((reply.status, outcome), (200, "switched_off".into()));
    service.signal("INT");
    let (status, rest) = service.wait(plimsoll_testing::servers::PATIENCE);
    assert_eq!((status.code(), &*rest), (Some(0), ""));
    assert!(!service.log().contains(token));
}

#[test]
fn the_listener_has_health_and_metrics() {
    let service = Service::start(&[]);
    assert_eq!(send(&service.admin, "GET", "/healthcheck", &[], b"").text(), "OK\n");
    let metrics = send(&service.admin, "GET", "/metrics", &[], b"").text();
    assert!(metrics.contains("plimsoll_server_info{version="), "{metrics}");
}

#[test]
fn the_paths_of_clients_are_not_on_the_admin_page() {
    let folder = plimsoll_testing::servers::directory();
    let limits = "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 2}}]\n";
    std::fs::write(folder.join("shop.yaml"), limits).unwrap();
    let token = "token-of-the-operator-77";
    let variables = [("PLIMSOLL_ADMIN_TOKEN", token)];
    let service = Service::start_with(&["--envoy-config", folder.to_str().unwrap()], &variables);
    let status = |address: &str, request: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        exchange(&mut stream, request.as_bytes()).unwrap().status
    };
    let body =
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}"#;
    let head = "POST /json HTTP/1.1\r\nhost: x\r\nconnection: close";
    let decide = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    assert_eq!((status(&service.http, &decide), status(&service.admin, &decide)), (200, 404));
    std::fs::remove_dir_all(folder).unwrap();
}
