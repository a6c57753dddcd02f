//! Clients, their tokens, and their policies.

use serde_json::json;

use crate::support::{Service, send};

const SHOP: &str = "token-of-the-shop-2f0e9d5c";
const BLOG: &str = "token-of-the-blog-b71c44aa";
const ALL: &str = "token-of-all-policies-91d1";

struct Clients {
    service: Service,
    folder: std::path::PathBuf,
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn start(flags: &[&str]) -> Clients {
    let folder = plimsoll_testing::servers::directory();
    let limits = "policies = { search = '5/h', orders = '5/h', posts = '5/h' }";
    std::fs::write(folder.join("limits.toml"), limits).unwrap();
    let settings = format!(
        "config = ['limits.toml']\n\
         [[clients]]\nname = 'shop'\ntoken = '{SHOP}'\npolicies = ['search', 'ord*']\n\
         [[clients]]\nname = 'blog'\ntoken = '${{TOKEN_OF_THE_BLOG}}'\npolicies = ['posts']\n"
    );
    let file = folder.join("settings.toml");
    std::fs::write(&file, settings).unwrap();
    let flags = [&["--settings", file.to_str().unwrap()], flags].concat();
    let variables = [("TOKEN_OF_THE_BLOG", BLOG), ("PLIMSOLL_TOKEN", ALL)];
    Clients { service: Service::start_with(&flags, &variables), folder }
}

fn check(policy: &str) -> String {
    json!({"charges": [{"policy": policy, "key": "a-secret-key", "cost": 1}]}).to_string()
}

#[test]
fn a_client_uses_its_policies_and_no_others() {
    let clients = start(&[]);
    let status = |token: &str, policy: &str| {
        clients.service.post_as(Some(token), "/v1/check", &check(policy)).status
    };
    assert_eq!((status(SHOP, "search"), status(SHOP, "orders")), (200, 200));
    assert_eq!((status(SHOP, "posts"), status(BLOG, "posts")), (404, 200));
    assert_eq!((status(BLOG, "search"), status(ALL, "search")), (404, 200));
    // One forbidden policy forbids the whole request.
    let both = json!({"charges": [
        {"policy": "search", "key": "x"}, {"policy": "posts", "key": "x"},
    ]})
    .to_string();
    for path in ["/v1/check", "/v1/peek", "/v1/reserve"] {
        assert_eq!(clients.service.post_as(Some(SHOP), path, &both).status, 404, "{path}");
    }
    let keys = json!({"keys": [{"policy": "posts", "key": "x"}]}).to_string();
    assert_eq!(clients.service.post_as(Some(SHOP), "/v1/reset", &keys).status, 404);
    // A suggestion names no policy of others.
    let reply = clients.service.post_as(Some(SHOP), "/v1/check", &check("post"));
    assert_eq!((reply.status, reply.field("allowed")), (404, "orders, search".to_owned()));
    assert_eq!(reply.json()["nearest"], json!(null));
    // The policy of others is answered as one that does not exist.
    let of_others = clients.service.post_as(Some(SHOP), "/v1/check", &check("posts"));
    assert_eq!(of_others.text().replace("posts", "post"), reply.text());
}

#[test]
fn a_request_without_a_token_of_a_client_is_refused() {
    let clients = start(&[]);
    let send_with = |headers: &[(&str, &str)]| {
        let headers = [&[("content-type", "application/json")], headers].concat();
        let body = check("search");
        send(&clients.service.http, "POST", "/v1/check", &headers, body.as_bytes())
    };
    let bearer = |token: &str| format!("Bearer {token}");
    for wrong in [
        &[][..],
        &[("authorization", "Bearer ")],
        &[("authorization", SHOP)],
        &[("authorization", &bearer(&SHOP[1..]))],
        &[("authorization", &bearer(&format!("{SHOP}x")))],
        &[("authorization", &bearer(&SHOP.to_uppercase()))],
        &[("authorization", &bearer(SHOP)), ("authorization", &bearer(SHOP))],
        &[("authorization", "Basic dXNlcjpwYXNz")],
        &[("authorization", "Bearer \u{e9}\u{e9}")],
    ] {
        let reply = send_with(wrong);
        let challenge = reply.header("www-authenticate");
        assert_eq!((reply.status, challenge), (401, Some("bearer")), "{wrong:?}");
    }
    assert_eq!(send_with(&[("authorization", &bearer(SHOP))]).status, 200);
    // The other paths too, but for the health and the document.
    for path in ["check", "peek", "reserve", "settle", "refund", "reset"] {
        assert_eq!(clients.service.post(&format!("/v1/{path}"), "{}").status, 401, "{path}");
    }
    for path in ["acquire", "renew", "release"] {
        assert_eq!(clients.service.post(&format!("/v1/slots/{path}"), "{}").status, 401, "{path}");
    }
    let metrics = |token: &str| {
        let headers = [("authorization", &*bearer(token))];
        send(&clients.service.http, "GET", "/metrics", &headers, b"").status
    };
    assert_eq!(clients.service.get("/metrics").status, 401);
    assert_eq!((metrics(SHOP), metrics(ALL)), (403, 200));
    assert_eq!(clients.service.get("/healthcheck").status, 200);
    assert_eq!(clients.service.get("/openapi.json").status, 200);
}

#[test]
fn a_receipt_belongs_to_the_client_that_has_reserved() {
    let clients = start(&[]);
    let reserved = clients.service.post_as(Some(SHOP), "/v1/reserve", &check("search"));
    let body = json!({"receipt": reserved.field("receipt")}).to_string();
    // Also a client that may use the policy.
    for token in [ALL, BLOG] {
        assert_eq!(clients.service.post_as(Some(token), "/v1/refund", &body).status, 403);
    }
    assert_eq!(clients.service.post_as(Some(SHOP), "/v1/refund", &body).status, 200);
}

#[test]
fn no_token_and_no_key_is_in_the_log() {
    for format in ["text", "json"] {
        let clients = start(&["--log", "trace", "--log-format", format]);
        let Clients { service, .. } = &clients;
        for token in [SHOP, "a-wrong-token-0123456789"] {
            for _ in 0..7 {
                service.post_as(Some(token), "/v1/check", &check("search"));
            }
            service.post_as(Some(token), "/v1/check", "{\"charges\": [\"a-secret-key\"");
        }
        let reserved = service.post_as(Some(SHOP), "/v1/reserve", &check("orders"));
        let receipt = reserved.field("receipt");
        let body = json!({"receipt": receipt}).to_string();
        assert_eq!(service.post_as(Some(SHOP), "/v1/refund", &body).status, 200);
        let log = service.log();
        assert!(log.contains("denied"), "{log}");
        let secrets = [SHOP, BLOG, ALL, "a-wrong-token", "a-secret-key", &receipt[..60]];
        for secret in secrets {
            assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
        }
        if format == "json" {
            assert!(log.lines().all(|line| line.starts_with('{')), "{log}");
        }
    }
}
