//! The HTTP API answers each body with a status of its document, and accepts no receipt but its own, once.
//!
//! The first byte is the path. The letter `@` in the body stands for a receipt that the service has issued.
#![no_main]

use axum::{
    Router,
    body::{Body, to_bytes},
};
use http::{Request, StatusCode};
use libfuzzer_sys::fuzz_target;
use plimsoll::Limiter;
use plimsoll_control::{Config, Format, Offenders};
use plimsoll_server::{
    http::{Api, router},
    settings::Flags,
};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

const LIMITS: &str = "
[policies]
api = '5/min'
bucket = '100/min token-bucket(20)'
work = '3 concurrent expires(30s)'
";

const PATHS: [&str; 9] = [
    "/v1/check",
    "/v1/peek",
    "/v1/reserve",
    "/v1/reset",
    "/v1/slots/acquire",
    "/v1/settle",
    "/v1/refund",
    "/v1/slots/renew",
    "/v1/slots/release",
];

/// The number of the first path that takes a receipt, and of the first that takes a slot.
const RECEIPTS: usize = 5;
const SLOTS: usize = 7;

const MAX_BODY: usize = 65_536;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
}

fuzz_target!(|input: &str| {
    let mut letters = input.chars();
    let Some(first) = letters.next() else { return };
    let path = first as usize % PATHS.len();
    RUNTIME.with(|runtime| runtime.block_on(ask(path, letters.as_str())));
});

async fn ask(path: usize, body: &str) {
    let api = api();
    let takes_receipt = path >= RECEIPTS;
    let has_receipt = takes_receipt && body.contains('@');
    let mut body = body.to_owned();
    if has_receipt {
        body = body.replace('@', &issue(&api, path).await);
    }
    let status = send(&api, PATHS[path], &body).await;
    if takes_receipt {
        assert!(has_receipt || status != StatusCode::OK, "forged: {body}");
        let again = send(&api, PATHS[path], &body).await;
        assert_ne!(again, StatusCode::OK, "used twice: {body}");
        assert!(status != StatusCode::OK || again == StatusCode::CONFLICT, "{again}: {body}");
    }
}

fn api() -> Router {
    let config = Config::from_text(LIMITS, Format::Toml).expect("right limits");
    let settings =
        Flags::parse_from(["plimsoll-server"]).expect("flags").settings().expect("right settings");
    let offenders = Offenders::new(10);
    let registry = config.registry().clone();
    router(Api::new(registry, Limiter::in_memory(), offenders, &settings).expect("an API"))
}

/// Returns a receipt or a slot for a path.
async fn issue(api: &Router, path: usize) -> String {
    let (from, policy, field) = match path < SLOTS {
        true => ("/v1/reserve", "api", "receipt"),
        false => ("/v1/slots/acquire", "work", "slot"),
    };
    let body = format!(r#"{{"charges":[{{"policy":"{policy}","key":"a","cost":2}}]}}"#);
    let (status, text) = exchange(api, from, &body).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let start = text.split_once(&format!("\"{field}\":\"")).expect("the field").1;
    start.split_once('"').expect("its end").0.to_owned()
}

async fn send(api: &Router, path: &str, body: &str) -> StatusCode {
    let (status, text) = exchange(api, path, body).await;
    let statuses = [200, 400, 403, 404, 409, 410, 413, 422, 429];
    assert!(statuses.contains(&status.as_u16()), "{path}: {status} {text}");
    assert!(text.starts_with('{') && text.ends_with('}'), "{text}");
    status
}

async fn exchange(api: &Router, path: &str, body: &str) -> (StatusCode, String) {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::from(body.to_owned())).expect("a request");
    let response = api.clone().oneshot(request).await.expect("an answer");
    let status = response.status();
    let text = to_bytes(response.into_body(), 16 * MAX_BODY).await.expect("a body");
    (status, String::from_utf8(text.into()).expect("text"))
}
