//! The admin API: who may do what, what it answers, and attacks.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    response::Response,
    routing::get,
};
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use plimsoll::{
    Error, Key, Limiter, MemoryStore, Policy, RateLimitLayer, RedisStore, Resilience, Rule, by,
    error::{Effect, ErrorKind},
    memory::MemoryConfig,
    store::{Answer, Request as StoreRequest, Store},
};
use plimsoll_control::{
    Config, KeyType, Offenders, Origin, Override, OverrideKind, Overrides, Registry,
    admin::{self, Access, AdminConfig, Operator, Role},
};
use plimsoll_testing::servers::{self, Server};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

const WRITE: &str = "Bearer write-token";
const READ: &str = "Bearer read-token";

/// All paths of the API, with the methods that they know.
const ROUTES: [(&str, &[&str]); 12] = [
    ("policies", &["GET"]),
    ("keys?key=alice", &["GET"]),
    ("overrides", &["GET", "PUT", "DELETE"]),
    ("reset", &["POST"]),
    ("block", &["POST"]),
    ("unblock", &["POST"]),
    ("offenders?policy=demo", &["GET"]),
    ("audit", &["GET"]),
    ("status", &["GET"]),
    ("fleet", &["GET"]),
    ("hits", &["GET"]),
    ("trials", &["GET"]),
];

/// A service with the policy `demo`, whose keys are texts, and `rows`, whose keys are integers.
struct Service {
    app: Router,
    registry: Registry,
    limiter: Limiter,
    demo: Policy,
    overrides: Overrides,
    offenders: Offenders,
}

struct Reply {
    status: StatusCode,
    media_type: String,
    body: Value,
}

fn service() -> Service {
    service_with(Access::tokens().write("alice", "write-token").read("bob", "read-token"))
}

fn service_with(access: Access) -> Service {
    service_of(Limiter::in_memory(), access)
}

fn service_of(limiter: Limiter, access: Access) -> Service {
    let registry = Registry::default();
    let demo = Policy::new("demo", "2/min").unwrap();
    registry.register(demo.clone(), Origin::Code, KeyType::Text).unwrap();
    let rows = Policy::new("rows", "5/min").unwrap();
    registry.register(rows, Origin::Code, KeyType::Integer).unwrap();
    let overrides = Overrides::in_memory(registry.clone(), limiter.clone()).show_keys();
    let offenders = Offenders::new(100).show_keys();
    let config = AdminConfig::new(overrides.clone(), offenders.clone(), access);
    let app = Router::new().nest("/admin/", admin::router(config));
    Service { app, registry, limiter, demo, overrides, offenders }
}

impl Service {
    async fn send(&self, request: Request<Body>) -> Response {
        self.app.clone().oneshot(request).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, token: &str, body: &str) -> Reply {
        let mut request = Request::builder().method(method).uri(format!("/admin/api/{path}"));
        if !token.is_empty() {
            request = request.header("authorization", token);
        }
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        reply(self.send(request.body(body.to_owned().into()).unwrap()).await).await
    }

    async fn get(&self, path: &str) -> Value {
        let reply = self.ask("GET", path, READ, "").await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        reply.body
    }

    async fn change(&self, method: &str, path: &str, body: Value) -> Reply {
        self.ask(method, path, WRITE, &body.to_string()).await
    }

    /// Spends a unit of a key under `demo`, as a request would.
    async fn spend(&self, key: impl Into<Key>) -> bool {
        let decision = self.limiter.check(self.demo.charge(key, 1)).await.unwrap();
        self.offenders.record(&decision);
        decision.is_allowed()
    }
}

/// Writes a text for the query of a URL.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

async fn reply(response: Response) -> Reply {
    let status = response.status();
    let media_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Reply { status, media_type, body }
}

#[tokio::test]
async fn without_a_token_that_is_known_nothing_is_seen_or_changed() {
    let service = service();
    for (path, methods) in ROUTES {
        for method in methods {
            for token in ["", "Bearer wrong", "Bearer ", "Basic write-token", "write-token"] {
                let reply = service.ask(method, path, token, "{}").await;
                assert_eq!(reply.status, 401, "{method} {path} with {token:?}");
                assert_eq!(reply.media_type, "application/problem+json");
                assert!(reply.body["allowed"].as_str().unwrap().contains("Bearer"));
            }
            // A token in a cookie is none.
            let request = Request::builder()
                .method(*method)
                .uri(format!("/admin/api/{path}"))
                .header("cookie", "authorization=Bearer write-token; token=write-token")
                .body(Body::empty());
            assert_eq!(service.send(request.unwrap()).await.status(), 401, "{method} {path}");
        }
    }
    // A path that does not exist gets the same answer.
    assert_eq!(service.ask("GET", "nothing", "", "").await.status, 401);
    assert_eq!(service.ask("GET", "nothing", READ, "").await.status, 404);
    assert_eq!(service.ask("POST", "policies", WRITE, "{}").await.status, 405);
    // An access without tokens admits no request.
    let closed = service_with(Access::tokens().write("alice", ""));
    assert_eq!(closed.ask("GET", "policies", "Bearer ", "").await.status, 401);
}

#[tokio::test]
async fn a_read_token_sees_everything_and_changes_nothing() {
    let service = service();
    assert!(service.spend("alice").await);
    let body = json!({ "policy": "demo", "key": "alice", "quota": "9/min", "reason": "x" });
    for (path, methods) in ROUTES {
        for method in methods {
            let reply = service.ask(method, path, READ, &body.to_string()).await;
            let expected = if *method == "GET" { 200 } else { 403 };
            assert_eq!(reply.status, expected, "{method} {path}");
        }
    }
    assert!(service.overrides.list().is_empty());
    assert_eq!(service.overrides.audit(10).await.unwrap(), []);
    assert_eq!(service.get("keys?key=alice").await["standings"][0]["remaining"], 1);
}

#[tokio::test]
async fn another_site_changes_nothing_even_if_a_cookie_authenticates() {
    let service = service_with(Access::custom(|request| {
        let cookie = request.headers.get("cookie")?;
        (cookie == "session=alice").then(|| Operator::new("alice", Role::Write))
    }));
    let send = async |media_type: &str, site: Option<&str>| {
        let mut request = Request::post("/admin/api/block")
            .header("cookie", "session=alice")
            .header("content-type", media_type);
        if let Some(site) = site {
            request = request.header("sec-fetch-site", site);
        }
        let body = json!({ "policy": "demo", "key": "alice", "reason": "x" }).to_string();
        service.send(request.body(body.into()).unwrap()).await.status()
    };
    // The form of another site can send these. Older browsers do not say where a request comes from.
    for form in ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"] {
        assert_eq!(send(form, None).await, 415);
        assert_eq!(send(form, Some("cross-site")).await, 403);
    }
    assert_eq!(send("application/json", Some("cross-site")).await, 403);
    assert_eq!(send("application/json", Some("same-site")).await, 403);
    assert!(service.overrides.list().is_empty());
    assert_eq!(send("application/json", Some("same-origin")).await, 200);
    assert_eq!(service.overrides.list().len(), 1);
}

#[tokio::test]
async fn a_quota_of_a_key_is_set_seen_and_ended() {
    let service = service();
    assert!(service.spend("alice").await && service.spend("alice").await);
    assert!(!service.spend("alice").await);
    let set = json!({
        "policy": "demo", "key": "alice", "quota": "5/min", "reason": "a launch", "until": "2h",
    });
    let reply = service.change("PUT", "overrides", set).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let message = reply.body["message"].as_str().unwrap();
    let until = message.strip_prefix("alice under demo: 5/min until ").unwrap();
    let until = until.strip_suffix(", before 2/min").unwrap();
    assert!(until.starts_with("20") && until.ends_with('Z'), "{message}");
    assert!(service.spend("alice").await);

    let listed = service.get("overrides").await;
    assert_eq!(listed[0]["key"], "alice");
    assert_eq!(listed[0]["kind"], json!({ "quota": "5/min" }));
    assert_eq!(listed[0]["by"], "alice");
    let standing = &service.get("keys?key=alice").await["standings"][0];
    assert_eq!((&standing["limit"], &standing["remaining"]), (&json!(5), &json!(2)));
    assert_eq!(standing["is_own_quota"], true);
    assert_eq!(service.get("policies").await[0]["key_overrides"], 1);

    let end = json!({ "policy": "demo", "key": "alice", "reason": "over" });
    assert_eq!(service.change("DELETE", "overrides", end.clone()).await.status, 200);
    assert!(!service.spend("alice").await);
    assert_eq!(service.change("DELETE", "overrides", end).await.status, 404);
    let audit = service.get("audit").await;
    assert_eq!((&audit[0]["action"], &audit[0]["reason"]), (&json!("remove"), &json!("over")));
    assert_eq!((&audit[1]["action"], &audit[1]["after"]), (&json!("set"), &json!("5/min")));
}

#[tokio::test]
async fn a_key_is_reset_blocked_and_unblocked() {
    let service = service();
    assert!(service.spend("alice").await && service.spend("alice").await);
    let of = |key: &str| json!({ "policy": "demo", "key": key, "reason": "a test" });
    let reply = service.change("POST", "reset", of("alice")).await;
    assert_eq!(reply.body["found"], true);
    assert_eq!(reply.body["message"], "alice under demo: 2 of 2 left, before 0 of 2 left");
    assert!(service.spend("alice").await);
    let reply = service.change("POST", "reset", of("nobody")).await;
    assert_eq!(reply.body["found"], false);

    assert_eq!(service.change("POST", "block", of("alice")).await.status, 200);
    assert!(!service.spend("alice").await);
    assert_eq!(service.get("overrides").await[0]["kind"], "block");
    let reply = service.change("POST", "unblock", of("alice")).await;
    assert_eq!(reply.body["found"], true, "{}", reply.body);
    assert!(service.spend("alice").await);
    assert_eq!(service.change("POST", "unblock", of("alice")).await.body["found"], false);

    // A reset lifts a block, and its override with it.
    service.change("POST", "block", of("alice")).await;
    service.change("POST", "reset", of("alice")).await;
    assert_eq!(service.get("overrides").await, json!([]));
    assert!(service.spend("alice").await);
    // The program itself has blocked a key.
    let charge = service.demo.charge("mallory", 1);
    service.limiter.block(charge, Duration::from_secs(60)).await.unwrap();
    assert_eq!(service.change("POST", "unblock", of("mallory")).await.body["found"], true);
    let actions: Vec<_> = service
        .overrides
        .audit(9)
        .await
        .unwrap()
        .iter()
        .map(|it| format!("{:?}", it.action).to_lowercase())
        .collect();
    assert_eq!(actions, ["unblock", "reset", "remove", "set", "remove", "set", "reset", "reset"]);
}

/// A key that the page shows is found by the lookup.
#[tokio::test]
async fn a_key_that_is_shown_is_looked_up_again() {
    let service = service();
    let keys = [Key::ANONYMOUS, "anonymous".into(), "42".into(), "#1f2e3d4c".into(), "a,\n".into()];
    for key in keys.iter().chain([&Key::from(b"\xff")]) {
        while service.spend(*key).await {}
    }
    let offenders = service.get("offenders?policy=demo").await;
    assert_eq!(offenders.as_array().unwrap().len(), keys.len() + 1);
    for offender in offenders.as_array().unwrap() {
        let shown = offender["key"].as_str().unwrap();
        let found = service.get(&format!("keys?key={}", encoded(shown))).await;
        assert_eq!(found["standings"][0]["remaining"], 0, "{shown}");
    }
}

#[tokio::test]
async fn a_digest_is_not_looked_up_as_a_key() {
    let service = service();
    let long = Key::from("x".repeat(47)).display_revealed().to_string();
    for digest in ["#1f2e3d4c", &long] {
        let reply = service.ask("GET", &format!("keys?key={}", encoded(digest)), READ, "").await;
        let detail = reply.body["detail"].as_str().unwrap_or_default();
        assert_eq!(reply.status, 422);
        assert!(detail.contains("digest") && detail.contains("show_keys"), "{detail}");
        let of = json!({ "policy": "demo", "key": digest, "quota": "9/min", "reason": "x" });
        let reply = service.change("PUT", "overrides", of).await;
        assert_eq!(reply.status, 422, "{}", reply.body);
        for path in ["reset", "block", "unblock"] {
            let of = json!({ "policy": "demo", "key": digest, "reason": "x" });
            let reply = service.change("POST", path, of).await;
            let detail = reply.body["detail"].as_str().unwrap_or_default();
            assert!(reply.status == 422 && detail.contains("digest"), "{path}: {detail}");
        }
    }
}

#[tokio::test]
async fn what_the_audit_log_would_refuse_changes_nothing() {
    let long_name =
        service_with(Access::custom(|_| Some(Operator::new(&"n".repeat(129), Role::Write))));
    for (service, key, reason) in [
        (service(), "alice".to_owned(), "é".repeat(501)),
        (service(), "k".repeat(1_025), "a test".to_owned()),
        (long_name, "alice".to_owned(), "a test".to_owned()),
    ] {
        while service.spend(&*key).await {}
        let charge = || service.demo.charge(&key, 1);
        service.limiter.block(charge(), Duration::from_secs(60)).await.unwrap();
        for path in ["reset", "unblock"] {
            let of = json!({ "policy": "demo", "key": key, "reason": reason });
            let reply = service.change("POST", path, of).await;
            assert_eq!(reply.status, 422, "{path}: {}", reply.body);
            let standing = service.limiter.peek(charge()).await.unwrap();
            assert!(!standing.is_allowed(), "{path} was done");
        }
        assert_eq!(service.overrides.audit(10).await.unwrap(), []);
    }
    let reason = "é".repeat(500);
    let of = json!({ "policy": "demo", "key": "alice", "reason": reason });
    let reply = service().change("POST", "reset", of).await;
    assert_eq!((reply.status.as_u16(), &reply.body["audited"]), (200, &json!(true)));
}

#[tokio::test]
async fn a_change_that_the_store_refuses_is_not_in_the_audit_log() {
    let mut redis = Server::start();
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let service = service_of(Limiter::new(store), Access::tokens().write("alice", "write-token"));
    assert!(service.spend("alice").await);
    redis.kill();
    let of = json!({ "policy": "demo", "key": "alice", "reason": "a test" });
    for path in ["reset", "unblock"] {
        let reply = service.change("POST", path, of.clone()).await;
        assert_eq!(reply.status, 503, "{path}: {}", reply.body);
        assert_eq!(service.overrides.audit(10).await.unwrap(), []);
    }
    // A block is stored with the overrides, and not applied yet.
    let reply = service.change("POST", "block", of).await;
    assert_eq!(reply.status, 202, "{}", reply.body);
    assert!(reply.body["message"].as_str().unwrap().contains("tries again"), "{}", reply.body);
    assert_eq!(service.overrides.list().len(), 1);
}

/// A store that makes resets and loses the replies to so many.
#[derive(Debug)]
struct Losing {
    store: MemoryStore,
    losses: AtomicUsize,
}

impl Store for Losing {
    fn call(&self, request: StoreRequest<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let answer = self.store.call(request, deadline);
        let fewer = |losses: usize| losses.checked_sub(1);
        let is_reset = matches!(request, StoreRequest::Reset(_) | StoreRequest::Unblock(_));
        if !is_reset || self.losses.fetch_update(SeqCst, SeqCst, fewer).is_err() {
            return answer;
        }
        let lost = Error::new(ErrorKind::Unavailable, "the connection was closed");
        Answer::ready(Err(lost.with_effect(Effect::Unknown)))
    }
}

/// A reset or the end of a block is sent again if its reply is lost: forgetting twice is forgetting once.
#[tokio::test]
async fn a_change_of_a_key_whose_reply_is_lost_is_made_again() {
    for (losses, status) in [(1, 200), (2, 504)] {
        for path in ["reset", "unblock"] {
            let store = Losing {
                store: MemoryStore::new(MemoryConfig::default()),
                losses: AtomicUsize::new(losses),
            };
            let access = Access::tokens().write("alice", "write-token");
            let service = service_of(Limiter::with_resilience(store, Resilience::none()), access);
            service
                .limiter
                .block(service.demo.charge("alice", 1), Duration::from_secs(60))
                .await
                .unwrap();
            let of = json!({ "policy": "demo", "key": "alice", "reason": "a test" });
            let reply = service.change("POST", path, of).await;
            assert_eq!(reply.status, status, "{path}: {}", reply.body);
            assert!(service.spend("alice").await);
            let audit = service.overrides.audit(10).await.unwrap();
            assert_eq!(audit.len(), 1, "{audit:?}");
            let is_unknown = audit[0].after.as_deref().is_some_and(|it| it.starts_with("unknown"));
            assert_eq!(
                (format!("{:?}", audit[0].action).to_lowercase().as_str(), is_unknown),
                (path, losses == 2)
            );
            // The first call has found the key, and the second one has not.
            assert_eq!(losses == 1, reply.body["found"] == true, "{}", reply.body);
        }
    }
}

/// An entry of the audit log is undone unless another change has followed.
#[tokio::test]
async fn a_change_is_undone_by_its_version() {
    let service = service();
    let put = async |quota: &str| {
        let body = json!({ "policy": "demo", "quota": quota, "reason": "a test" });
        assert_eq!(service.change("PUT", "overrides", body).await.status, 200);
        service.get("audit?count=1").await[0].clone()
    };
    let (first, second) = (put("5/min").await, put("9/min").await);
    assert_eq!((&second["before"], &second["after"]), (&"5/min".into(), &"9/min".into()));
    let undo = |entry: &Value| {
        let version = entry["version"].clone();
        let mut body = json!({ "policy": "demo", "reason": "undo", "version": version });
        let method = if entry["before"].is_null() { "DELETE" } else { "PUT" };
        if method == "PUT" {
            body["quota"] = entry["before"].clone();
        }
        (method, body)
    };
    let (method, body) = undo(&first);
    let late = service.change(method, "overrides", body).await;
    assert_eq!((method, late.status.as_u16()), ("DELETE", 409), "{}", late.body);
    let (method, body) = undo(&second);
    assert_eq!(service.change(method, "overrides", body).await.status, 200);
    assert_eq!(service.get("overrides").await[0]["kind"]["quota"], "5/min");
    let third = service.get("audit?count=1").await[0].clone();
    let end = json!({ "policy": "demo", "reason": "undo", "version": third["version"] });
    assert_eq!(service.change("DELETE", "overrides", end.clone()).await.status, 200);
    assert_eq!(service.change("DELETE", "overrides", end).await.status, 404);
    assert_eq!(service.get("overrides").await, json!([]));
}

/// Two operators see the same override, and both change it.
#[tokio::test]
async fn the_second_operator_learns_of_the_first() {
    let service = service();
    let seen = async || {
        let policies = service.get("policies").await;
        let key = service.get("keys?key=alice").await;
        (policies[0]["override_version"].clone(), key["standings"][0]["override_version"].clone())
    };
    for (method, path, key, body) in [
        ("PUT", "overrides", None, json!({ "quota": "9/min" })),
        ("PUT", "overrides", Some("alice"), json!({ "quota": "9/min" })),
        ("POST", "block", Some("alice"), json!({})),
    ] {
        let (of_policy, of_key) = seen().await;
        let mut body = body;
        body["policy"] = "demo".into();
        body["reason"] = "a test".into();
        body["version"] = if key.is_some() { of_key } else { of_policy };
        if let Some(key) = key {
            body["key"] = key.into();
        }
        let first = service.change(method, path, body.clone()).await;
        assert_eq!(first.status, 200, "{}", first.body);
        let second = service.change(method, path, body.clone()).await;
        assert_eq!(
            (second.status.as_u16(), &*second.media_type),
            (409, "application/problem+json")
        );
        assert_eq!(second.body["version"], first.body["version"]);
        let (of_policy, of_key) = seen().await;
        let current = if key.is_some() { of_key } else { of_policy };
        assert_eq!(current, first.body["version"]);
        body["version"] = current;
        assert_eq!(service.change(method, path, body).await.status, 200);
    }
}

#[tokio::test]
async fn a_policy_is_switched_off_if_its_rule_asks() {
    let service = service();
    let off = || json!({ "policy": "demo", "quota": "off", "reason": "an incident" });
    let reply = service.change("PUT", "overrides", off()).await;
    assert_eq!(reply.status, 422);
    assert!(reply.body["detail"].as_str().unwrap().contains("cannot be switched off"));
    assert!(reply.body["allowed"].as_str().unwrap().contains("Registered::switch"));
    assert!(service.overrides.list().is_empty());

    let demo = service.registry.get("demo").unwrap();
    let rule = Rule::new(demo.policy().clone(), by::anonymous()).only(demo.switch());
    let layer = RateLimitLayer::new(service.limiter.clone(), rule);
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    let status = async || {
        let request = Request::new(Body::empty());
        app.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!([status().await, status().await, status().await], [200, 200, 429]);
    assert_eq!(service.change("PUT", "overrides", off()).await.status, 200);
    assert_eq!(status().await, 200);
    let end = json!({ "policy": "demo", "reason": "it is over" });
    assert_eq!(service.change("DELETE", "overrides", end).await.status, 200);
    assert_eq!(status().await, 429);
}

/// A store that never answers.
#[derive(Debug)]
struct Hanging;

impl Store for Hanging {
    fn call(&self, _: StoreRequest<'_>, _: Option<std::time::Instant>) -> Answer {
        Answer::pending(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_delays_a_lookup_once() {
    let access = Access::tokens().read("bob", "read-token");
    let service = service_of(Limiter::with_resilience(Hanging, Resilience::none()), access);
    let start = Instant::now();
    let found = service.get("keys?key=7").await;
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    for standing in found["standings"].as_array().unwrap() {
        assert!(standing["no_data"].as_str().unwrap().contains("within 2 s"), "{standing}");
    }
    assert_eq!(found["standings"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_status_says_if_the_file_needs_a_restart_and_how_many_instances_there_are() {
    let path = servers::directory().join("limits.toml");
    std::fs::write(&path, "policies.api = '1/s'").unwrap();
    let config = Config::from_path(&path).unwrap();
    let (registry, limiter) = (config.registry().clone(), Limiter::in_memory());
    let overrides = Overrides::in_memory(registry.clone(), limiter.clone());
    let access = Access::custom(|_| Some(Operator::new("alice", Role::Read)));
    let admin = AdminConfig::new(overrides, Offenders::new(1), access);
    let app = admin::router(admin.config(&config));
    let needs_restart = async || {
        let request = Request::get("/api/status").body(Body::empty()).unwrap();
        let status = reply(app.clone().oneshot(request).await.unwrap()).await.body;
        assert_eq!(status["store"]["instances"], 1, "an embedded store has one");
        status["config"]["needs_restart"].clone()
    };
    assert_eq!(needs_restart().await, false);
    std::fs::write(&path, "policies.api = '1/s'\nresilience.deadline = '20ms'").unwrap();
    config.reload().unwrap();
    assert_eq!(needs_restart().await, true);
}

#[tokio::test]
async fn offenders_are_in_the_order_of_denials_or_of_units() {
    let service = service();
    let spender = service.demo.charge("spender", 1).with_quota("100000/min".parse().unwrap());
    for _ in 0..5_000 {
        service.offenders.record(&service.limiter.check(spender.clone()).await.unwrap());
    }
    for _ in 0..5 {
        service.spend("denied").await;
    }
    for (by, first) in [("", "denied"), ("&by=denied", "denied"), ("&by=spent", "spender")] {
        let list = service.get(&format!("offenders?policy=demo{by}")).await;
        assert_eq!(list[0]["key"], first, "{by}");
    }
    // One list has the offenders of all policies.
    let rows = service.registry.get("rows").unwrap();
    for _ in 0..20 {
        let decision = service.limiter.check(rows.policy().charge(7, 1)).await.unwrap();
        service.offenders.record(&decision);
    }
    let list = service.get("offenders?by=denied").await;
    let row = |at: usize| (list[at]["policy"].clone(), list[at]["key"].clone());
    assert_eq!(row(0), ("rows".into(), "7".into()), "{list}");
    assert_eq!(row(1), ("demo".into(), "denied".into()), "{list}");
    assert_eq!(service.get("offenders?by=denied&count=1").await.as_array().unwrap().len(), 1);
    let wrong = service.ask("GET", "offenders?policy=demo&by=name", READ, "").await;
    assert!(wrong.status == 422 && wrong.body["allowed"].as_str().unwrap().contains("spent"));
}

#[tokio::test]
async fn mistakes_say_what_is_allowed() {
    let service = service();
    let quota = |quota: &str| json!({ "policy": "demo", "quota": quota, "reason": "x" });
    let until =
        |until: Value| json!({ "policy": "demo", "quota": "5/min", "reason": "x", "until": until });
    for (method, path, body, status, allowed) in [
        ("PUT", "overrides", quota("5/mim"), 422, "a quota such as 2/min, or \"off\""),
        ("PUT", "overrides", quota("5/min fixed-window"), 422, "sliding-log"),
        ("PUT", "overrides", until(json!("yesterday")), 422, "2h"),
        ("PUT", "overrides", until(json!("1")), 422, "2h"),
        (
            "PUT",
            "overrides",
            json!({ "policy": "demo", "quota": "5/min", "reason": " " }),
            422,
            "1 to 1000",
        ),
        ("POST", "reset", json!({ "policy": "dem", "key": "x", "reason": "x" }), 404, "demo, rows"),
        (
            "POST",
            "reset",
            json!({ "policy": "rows", "key": "x", "reason": "x" }),
            422,
            "an integer",
        ),
        (
            "POST",
            "block",
            json!({ "policy": "rows", "key": "x", "reason": "x" }),
            422,
            "an integer",
        ),
    ] {
        let reply = service.change(method, path, body.clone()).await;
        assert_eq!(
            (reply.status.as_u16(), &*reply.media_type),
            (status, "application/problem+json")
        );
        let text = format!("{} {}", reply.body["detail"], reply.body["allowed"]);
        assert!(text.replace('\\', "").contains(allowed), "{body}: {text}");
    }
    let unknown =
        json!({ "policy": "demo", "key": "x", "reason": "x", "quota": "5/min", "untill": "2h" });
    let reply = service.change("PUT", "overrides", unknown).await;
    let detail = reply.body["detail"].as_str().unwrap();
    assert!(detail.starts_with("unknown field `untill`, allowed is `policy`"), "{detail}");
    assert!(detail.ends_with("(did you mean `until`?)"), "{detail}");
    for malformed in ["{", "", "reset", "\u{1}"] {
        let request = Request::post("/admin/api/reset").header("authorization", WRITE);
        let request = request.header("content-type", "application/json");
        let response = service.send(request.body(malformed.into()).unwrap()).await;
        let reply = self::reply(response).await;
        assert_eq!((reply.status.as_u16(), &*reply.media_type), (400, "application/problem+json"));
    }
    assert_eq!(service.ask("GET", "offenders?count=many", READ, "").await.status, 422);
    assert_eq!(service.ask("GET", "keys", READ, "").await.status, 422);
    assert!(service.overrides.list().is_empty());
}

/// The operator reads which field is wrong, what was found, and what is allowed, and no word of the parser.
#[tokio::test]
async fn each_mistake_in_a_body_names_the_field_and_what_is_allowed() {
    let service = service();
    let object = "a table with the fields `policy`, `key`, `quota`";
    for (body, status, detail, allowed) in [
        ("", 400, "EOF", ""),
        ("[]", 422, "found a list", object),
        ("7", 422, "found the number 7", object),
        ("{\"policy\"", 400, "EOF", ""),
        (r#"{"policy":"demo","policy":"rows"}"#, 422, "the name is there twice", ""),
        (r#"{"quota":"5/min","reason":"x"}"#, 422, "the field `policy` is missing", ""),
        (r#"{"policy":7}"#, 422, "`policy`: found the number 7", "a text"),
        (
            r#"{"policy":"demo","quota":5,"reason":"x"}"#,
            422,
            "`quota`: found the number 5",
            "a text",
        ),
        (r#"{"policy":"demo","key":[1]}"#, 422, "`key`: found a list", "a text"),
        (r#"{"policy":"demo","key":1.5}"#, 422, "`key`: found the number 1.5", "a text"),
        (r#"{"policy":"demo","quota":"5/min"}"#, 422, "the field `reason` is missing", ""),
    ] {
        let request = Request::put("/admin/api/overrides").header("authorization", WRITE);
        let request = request.header("content-type", "application/json").body(body.into());
        let reply = reply(service.send(request.unwrap()).await).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.body);
        let found = reply.body["detail"].as_str().unwrap();
        assert!(found.contains(detail) && found.contains(allowed), "{body}: {found}");
    }
    for (field, value, detail, allowed) in [
        ("until", json!(1e300), "`until`: found the number 1e300", "a text"),
        ("until", json!([]), "`until`: found a list", "a text"),
        ("until", json!("5"), "`until`: found \"5\", which is not in the future", "90min"),
        ("until", json!("2020-01-01T00:00:00Z"), "which is not in the future", "90min"),
        ("until", json!("401d"), "which is more than 400 days ahead", "400 days"),
        ("until", json!("14:00"), "`until`: found \"14:00\"", "90min"),
        ("version", json!(-1), "`version`: found the number -1", "a whole number"),
        ("version", json!("7"), "`version`: found the text \"7\"", "a whole number"),
    ] {
        let mut set = json!({ "policy": "demo", "quota": "5/min", "reason": "x" });
        set[field] = value;
        let reply = service.change("PUT", "overrides", set).await;
        let found = reply.body["detail"].as_str().unwrap();
        assert!(
            reply.status == 422 && found.contains(detail) && found.contains(allowed),
            "{found}"
        );
    }
    assert!(service.overrides.list().is_empty());
    assert!(service.overrides.audit(9).await.unwrap().is_empty());
}

/// A number is no key and no time.
#[tokio::test]
async fn keys_and_times_are_texts() {
    let service = service();
    let set = |key: Value, until: Value| json!({ "policy": "rows", "key": key, "quota": "9/min", "reason": "x", "until": until });
    for (key, until, says) in [
        (json!(42), json!(null), "`key`: found the number 42, allowed is a text"),
        (json!("42"), json!(4_102_444_800_000_u64), "`until`: found the number"),
        (json!("42"), json!("4102444800000"), "more than 400 days"),
    ] {
        let reply = service.change("PUT", "overrides", set(key, until)).await;
        assert_eq!(reply.status, 422, "{}", reply.body);
        assert!(reply.body["detail"].as_str().unwrap().contains(says), "{}", reply.body);
    }
    assert_eq!(service.change("PUT", "overrides", set("42".into(), json!(null))).await.status, 200);
    let standings = &service.get("keys?key=42").await["standings"];
    assert_eq!(standings[1]["limit"], 9);
}

#[tokio::test]
async fn the_answer_to_a_change_says_what_is_in_force() {
    let service = service();
    let change = async |method, path, body| {
        let reply = service.change(method, path, body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.body["message"].as_str().unwrap().to_owned()
    };
    let block = json!({ "policy": "demo", "key": "", "reason": "x", "until": "1h" });
    let message = change("POST", "block", block).await;
    assert!(message.starts_with("\"\" under demo: blocked until 20"), "{message}");
    assert!(message.ends_with("Z, before 2/min"), "{message}");
    let set = json!({ "policy": "demo", "key": "", "quota": "9/min", "reason": "x" });
    assert_eq!(change("PUT", "overrides", set).await, "\"\" under demo: 9/min, before blocked");
    let _asks = service.registry.get("demo").unwrap().switch();
    let off = json!({ "policy": "demo", "quota": "off", "reason": "x" });
    assert_eq!(change("PUT", "overrides", off).await, "demo: off, before 2/min");
    let set = json!({ "policy": "demo", "key": "alice", "quota": "7/min", "reason": "x" });
    assert_eq!(
        change("PUT", "overrides", set).await,
        "alice under demo: 7/min, before off. Not in force yet: the policy is switched off"
    );
    let end = json!({ "policy": "demo", "reason": "x" });
    let message = change("DELETE", "overrides", end).await;
    assert_eq!(message, "demo: the override has ended, 2/min is in force");
    let reset = json!({ "policy": "demo", "key": "a\u{202e}b", "reason": "x" });
    let message = change("POST", "reset", reset).await;
    assert!(message.starts_with("\"a\\u{202e}b\" under demo: 2 of 2 left"), "{message}");
}

#[tokio::test]
async fn a_long_body_and_a_strange_key_do_no_harm() {
    let service = service();
    let long = json!({ "policy": "demo", "key": "k".repeat(1 << 20), "reason": "x" });
    for (method, path) in [("POST", "reset"), ("POST", "block"), ("PUT", "overrides")] {
        assert_eq!(service.change(method, path, long.clone()).await.status, 413, "{path}");
    }
    let long = service.ask("GET", &format!("keys?key={}", "k".repeat(5_000)), READ, "").await;
    assert_eq!(long.status, 422);
    assert_eq!(long.body["detail"], "The key is a text of 5000 bytes", "{}", long.body);
    for key in ["<script>alert(1)</script>", "\"'`", "\u{0}\u{7f}", "日本", "../../", "%00", ","]
    {
        while service.spend(key).await {}
        let found = service.get(&format!("keys?key={}", encoded(key))).await;
        assert_eq!(found["key"], key);
        assert_eq!(found["standings"][0]["remaining"], 0);
        assert!(found["standings"][1]["no_data"].as_str().unwrap().contains("an integer"));
        let of = json!({ "policy": "demo", "key": key, "reason": key });
        let reply = service.change("POST", "reset", of).await;
        assert_eq!(reply.body["found"], true, "{key:?}: {}", reply.body);
    }
    assert_eq!(service.get("offenders?policy=demo").await.as_array().unwrap().len(), 7);
}

/// A body whose end never comes.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_without_an_end_is_given_up() {
    let service = service();
    let request = Request::post("/admin/api/reset")
        .header("authorization", WRITE)
        .header("content-type", "application/json");
    let response = service.send(request.body(Body::new(Endless)).unwrap()).await;
    assert_eq!(response.status(), 408);
}

#[tokio::test]
async fn ten_thousand_overrides_are_listed_and_one_more_is_refused() {
    let service = service();
    for key in 0..Overrides::MAX {
        let kind = OverrideKind::Quota("9/min".parse().unwrap());
        let mut new = Override::new("demo", kind, "alice", "many");
        new.key = Some(format!("key-{key}"));
        service.overrides.set(new, None).await.unwrap();
    }
    assert_eq!(service.get("overrides").await.as_array().unwrap().len(), Overrides::MAX);
    let one_more = json!({ "policy": "demo", "key": "x", "quota": "9/min", "reason": "x" });
    let reply = service.change("PUT", "overrides", one_more).await;
    assert_eq!(reply.status, 507, "{}", reply.body);
}

#[tokio::test]
async fn the_page_loads_nothing_from_elsewhere() {
    let service = service();
    let get = async |path: &str| {
        let request = Request::get(format!("/admin/{path}")).body(Body::empty()).unwrap();
        let response = service.send(request).await;
        assert_eq!(response.status(), 200, "{path}");
        let headers = response.headers().clone();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (headers, String::from_utf8(body.to_vec()).unwrap())
    };
    let (headers, page) = get("").await;
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["x-frame-options"], "DENY");
    for inline in [" style=", "<style", " onclick=", " onload=", "javascript:"] {
        assert!(!page.contains(inline), "{inline}");
    }
    let mut files: Vec<String> = vec!["icon.svg".into(), "page.css".into(), "main.js".into()];
    for name in &files {
        assert!(page.contains(&format!("\"{name}\"")), "{name}");
    }
    // The page is complete, and no file is there that none uses.
    let mut place = 0;
    while place < files.len() {
        let (_, text) = get(&files[place]).await;
        assert!(
            !text.replace("http://www.w3.org/2000/svg", "").contains("://"),
            "{}",
            files[place]
        );
        for line in text.lines().filter(|line| line.starts_with("import ")) {
            let name = line.split("\"./").nth(1).unwrap().trim_end_matches("\";").to_owned();
            if !files.contains(&name) {
                files.push(name);
            }
        }
        place += 1;
    }
    let embedded = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/admin/page"));
    assert_eq!(embedded.unwrap().count(), files.len() + 1);
}

/// Hit rates are of this process, because its overrides are.
#[tokio::test]
async fn a_hit_rate_has_its_times_and_its_mark() {
    let service = service();
    assert_eq!(service.get("hits").await["policies"], json!([]));
    for _ in 0..5 {
        service.spend("alice").await;
    }
    let hits = service.get("hits").await;
    assert_eq!(hits["is_of_process"], true);
    let rate = &hits["policies"][0];
    assert_eq!((&rate["policy"], &rate["never_denies"]), (&json!("demo"), &json!(false)));
    for (span, hours) in [("hour", 1), ("day", 24), ("week", 168)] {
        let Value::Object(span) = &rate[span] else { panic!("{rate}") };
        assert_eq!((&span["admitted"], &span["denied"]), (&json!(2), &json!(3)));
        assert_eq!((&span["share"], &span["mark"]), (&json!(0.6), &json!("too_strict")));
        let [time, since] = [&hits["time"], &span["since"]].map(|it| it.as_u64().unwrap());
        assert_eq!(time / 3_600_000 - since / 3_600_000, hours);
    }
}
