//! The service while its Redis fails.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use plimsoll_testing::servers::Server;
use serde_json::json;

use crate::{checks::until, support::Service};

/// The deadline of a check is 50 ms. The rest is for a busy machine.
const IN_TIME: Duration = Duration::from_millis(1_500);
/// A machine does not stand still for so long.
const HANGS: Duration = Duration::from_secs(10);

fn signal(server: &Server, name: &str) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

fn body(on_failure: &str) -> String {
    json!({"charges": [{"policy": "demo", "key": "alice"}], "on_failure": on_failure}).to_string()
}

#[test]
fn no_answer_waits_for_a_redis_that_hangs() {
    let redis = Server::start();
    let url = redis.url();
    let service = Service::start_with(&["--redis", &url, "--on-failure", "allow"], &[]);
    let reserve = json!({"charges": [{"policy": "demo", "key": "bob"}]}).to_string();
    let receipt = service.post("/v1/reserve", &reserve).field("receipt");
    signal(&redis, "STOP");
    let mut times = Vec::new();
    let mut late = 0;
    for round in 0..20 {
        for (path, body, statuses) in [
            ("/v1/check", body("local"), &[200, 429][..]),
            ("/v1/check", body("allow"), &[200]),
            ("/v1/check", body("deny"), &[503]),
            ("/v1/peek", body("deny"), &[503, 200]),
            ("/v1/reserve", body("local"), &[200, 429]),
            ("/v1/reserve", body("deny"), &[503]),
            ("/v1/settle", json!({"receipt": receipt, "units": {"demo": 3}}).to_string(), &[503]),
            ("/v1/refund", json!({"receipt": receipt}).to_string(), &[503]),
            ("/v1/reset", json!({"keys": [{"policy": "demo", "key": "bob"}]}).to_string(), &[503]),
        ] {
            let try_once = || {
                let start = Instant::now();
                (service.post(path, &body), start.elapsed())
            };
            let (mut reply, mut took) = try_once();
            // The machine may stand still a few times.
            while took >= IN_TIME && late < 3 {
                assert!(took < HANGS, "{round} {path} {body}: {took:?}");
                late += 1;
                (reply, took) = try_once();
            }
            times.push(took);
            assert!(statuses.contains(&reply.status), "{round} {path} {body}: {}", reply.text());
            if reply.status == 503 {
                assert_eq!(reply.header("retry-after"), Some("1"));
                assert!(!reply.text().contains(&redis.port.to_string()), "{}", reply.text());
            }
        }
        assert_eq!(service.get("/healthcheck").status, 200);
    }
    times.sort();
    let [most, slowest] = [times[times.len() * 19 / 20], times[times.len() - 1]];
    println!(
        "measured: 95 % of {} answers while Redis hangs took {most:?}, all of them {slowest:?}",
        times.len()
    );
    // A request that needs two calls waits for each.
    assert!(most < Duration::from_millis(120), "{most:?}");
    assert!(slowest < IN_TIME, "{slowest:?}");
    signal(&redis, "CONT");
    until(|| service.post("/v1/check", &body("deny")).status != 503);
    // The receipt was not used up by what was not sent, or it was, and no unit came back twice.
    let status = service.post("/v1/refund", &json!({"receipt": receipt}).to_string()).status;
    assert!(matches!(status, 200 | 409), "{status}");
}

#[test]
fn a_redis_that_dies_and_comes_back_is_used_again() {
    let mut redis = Server::start();
    let url = redis.url();
    let service = Service::start_with(&["--redis", &url], &[]);
    until(|| service.check("demo", "alice", 0).json()["source"] == "shared");
    redis.kill();
    until(|| service.check("demo", "alice", 1).json()["source"] == "fallback");
    let denied = service.post("/v1/check", &body("deny"));
    assert_eq!((denied.status, &denied.json()["may_be_applied"]), (503, &json!(false)));
    redis.run();
    until(|| service.check("demo", "carol", 0).json()["source"] == "shared");
}

#[test]
fn a_redis_that_is_missing_at_the_start_is_an_error_or_is_awaited() {
    let mut redis = Server::start();
    let url = redis.url();
    redis.kill();
    let output = crate::support::program()
        .args(["--http", "127.0.0.1:0", "--grpc", "off", "--admin", "off", "--redis", &url])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("error: "), "{output:?}");
    let service = Service::start(&["--redis", &url, "--redis-lazy"]);
    assert_eq!(service.check("demo", "alice", 1).json()["source"], "fallback");
    redis.run();
    until(|| service.check("demo", "bob", 0).json()["source"] == "shared");
}

#[test]
fn a_request_cannot_admit_more_than_the_operator_while_the_store_fails() {
    for (setting, allowed) in [
        ("allow", &["allow", "local", "deny"][..]),
        ("local", &["local", "deny"]),
        ("deny", &["deny"]),
    ] {
        let service = Service::start(&["--on-failure", setting]);
        for asked in ["allow", "local", "deny"] {
            let reply = service.post("/v1/check", &body(asked));
            if allowed.contains(&asked) {
                assert_eq!(reply.status, 200, "{setting} {asked}: {}", reply.text());
            } else {
                assert_eq!(reply.status, 422, "{setting} {asked}: {}", reply.text());
                assert_eq!(reply.field("allowed"), allowed.join(", "));
            }
        }
    }
}
