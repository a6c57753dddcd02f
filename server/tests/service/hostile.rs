//! Requests that no honest client sends. Each gets an answer that says what is allowed, and the service goes on.

use std::{iter::repeat_n, net::TcpStream, process::Command};

use serde_json::json;

use crate::support::{Service, exchange, send};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

#[test]
fn bodies_that_are_not_allowed_are_refused() {
    let service = Service::start(&[]);
    let post = |body: &[u8]| send(&service.http, "POST", "/v1/check", JSON, body);
    let deep = [vec![b'['; 50_000], vec![b']'; 5_000]].concat();
    let deep_objects = "{\"charges\":".repeat(5_000);
    let many = |count: usize| {
        let charge = json!({"policy": "demo", "key": "alice"});
        json!({"charges": vec![charge; count]}).to_string()
    };
    let key = |key: &str| json!({"charges": [{"policy": "demo", "key": key}]}).to_string();
    let with =
        |fields: &str| format!("{{\"charges\":[{{\"policy\":\"demo\",\"key\":\"a\",{fields}}}]}}");
    for (body, status) in [
        (&b""[..], 400),
        (b"{", 400),
        (b"null", 422),
        (b"[]", 422),
        (b"\"charges\"", 422),
        (b"{\"charges\":[{\"policy\":\"demo\",\"key\":\"\xff\xfe\"}]}", 400),
        (b"\xef\xbb\xbf{}", 400),
        (b"{\"charges\":[{\"policy\":\"demo\",\"key\":\"\\ud800\"}]}", 400),
        (b"{\"charges\":[]} x", 400),
        (&deep, 422),
        (deep_objects.as_bytes(), 422),
        (b"{\"charges\":[]}", 422),
        (many(33).as_bytes(), 422),
        (many(32).as_bytes(), 403), // 32 units are more than the limit
        (key(&"k".repeat(1_025)).as_bytes(), 422),
        (key(&"k".repeat(1_024)).as_bytes(), 200),
        (key("\0\r\nx: y").as_bytes(), 200),
        (key("").as_bytes(), 200),
        (with("\"cost\":-1").as_bytes(), 422),
        (with("\"cost\":1.5").as_bytes(), 422),
        (with("\"cost\":\"1\"").as_bytes(), 422),
        (with("\"cost\":18446744073709551616").as_bytes(), 422),
        (with("\"cost\":18446744073709551615").as_bytes(), 403),
        (with("\"cost\":1e400").as_bytes(), 400),
        (with("\"cots\":1").as_bytes(), 422),
        (with("\"cost\":1,\"cost\":2").as_bytes(), 422),
        (with("\"shadow\":1").as_bytes(), 422),
        (b"{\"charges\":[{\"policy\":\"demo\"}]}", 422),
        (b"{\"charges\":[{\"key\":\"a\"}]}", 422),
        (b"{\"charges\":[{\"policy\":\"demo\",\"key\":42}]}", 422),
        (b"{\"charges\":[{\"policy\":\"demo\",\"key\":\"a\"}],\"on_failure\":\"maybe\"}", 422),
        (b"{\"charges\":[{\"policy\":\"plimsoll.receipts\",\"key\":\"a\"}]}", 404),
        (b"{\"charges\":[{\"policy\":\"\",\"key\":\"a\"}]}", 404),
        (b"{\"charges\":[{\"policy\":\"a}b{c\\u0000\",\"key\":\"a\"}]}", 404),
    ] {
        let reply = post(body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(100)]).into_owned();
        assert_eq!(reply.status, status, "{shown}: {}", reply.text());
    }
    // Two costs whose sum exceeds 64 bits.
    let huge = json!({"policy": "demo", "key": "alice", "cost": u64::MAX});
    assert_eq!(post(json!({"charges": [huge, huge]}).to_string().as_bytes()).status, 403);
    assert_eq!(service.check("demo", "another", 5).status, 200);
}

#[test]
fn a_body_that_is_too_long_is_not_read() {
    let service = Service::start(&[]);
    let long =
        format!("{{\"charges\":[{{\"policy\":\"demo\",\"key\":\"{}\"}}]}}", "x".repeat(1 << 20));
    let reply = send(&service.http, "POST", "/v1/check", JSON, long.as_bytes());
    assert_eq!((reply.status, reply.field("allowed")), (413, "at most 65536 bytes".to_owned()));
    // The length is not stated.
    let mut stream = TcpStream::connect(&service.http).unwrap();
    let mut request = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                        transfer-encoding: chunked\r\n\r\n"
        .to_vec();
    for _ in 0..4 {
        request.extend_from_slice(b"4000\r\n");
        request.extend_from_slice(&[b' '; 0x4000]);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"1\r\n \r\n");
    assert_eq!(exchange(&mut stream, &request).unwrap().status, 413);
    // A length that no memory holds is only a number.
    let mut stream = TcpStream::connect(&service.http).unwrap();
    let request = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                    content-length: 9999999999999\r\n\r\n{";
    assert_eq!(exchange(&mut stream, request).unwrap().status, 413);
    assert_eq!(service.check("demo", "alice", 1).status, 200);
}

#[test]
fn a_head_that_is_too_long_or_wrong_is_refused() {
    let service = Service::start(&[]);
    let status = |head: &str| {
        let mut stream = TcpStream::connect(&service.http).unwrap();
        exchange(&mut stream, head.as_bytes()).map_or(0, |reply| reply.status)
    };
    let get = |headers: &str| format!("GET /healthcheck HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
    assert_eq!(status(&get("")), 200);
    assert_eq!(status(&get(&format!("x: {}\r\n", "y".repeat(20_000)))), 431);
    assert_eq!(status(&get(&"x: y\r\n".repeat(100))), 431);
    assert!(matches!(status(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(20_000))), 414 | 431));
    for wrong in [
        "GET / HTTP/1.1\r\nhost x\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /v1/check HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        "POST /v1/check HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ] {
        assert_eq!(status(wrong), 400, "{wrong:?}");
    }
    assert_eq!(service.get("/healthcheck").status, 200);
}

#[test]
fn a_long_head_is_refused_over_http_2() {
    let service = Service::start(&[]);
    let curl = |headers: usize, more: &[&str], url: &str| {
        let many = repeat_n(["--header", "x: 0123456789"], headers).flatten();
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--include", "--http2-prior-knowledge"]);
        let output = curl.args(many).args(more).arg(url).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let health = format!("http://{}/healthcheck", service.http);
    assert!(curl(200, &[], &health).starts_with("HTTP/2 200"));
    assert!(curl(400, &[], &health).starts_with("HTTP/2 431"));
    // Such a head ends the connection.
    assert_eq!(curl(10_000, &[], &health), "");
    let method = format!("http://{}/grpc.health.v1.Health/Check", service.grpc);
    let grpc = ["--header", "content-type: application/grpc", "--request", "POST"];
    assert!(curl(400, &grpc, &method).starts_with("HTTP/2 431"));
}

#[test]
fn only_json_is_read() {
    let service = Service::start(&[]);
    let body = b"{\"charges\":[{\"policy\":\"demo\",\"key\":\"a\"}]}";
    for (content_type, status) in [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonx", 415),
        ("", 415),
    ] {
        let headers = [("content-type", content_type)];
        let reply = send(&service.http, "POST", "/v1/check", &headers, body);
        assert_eq!(reply.status, status, "{content_type}");
    }
}
