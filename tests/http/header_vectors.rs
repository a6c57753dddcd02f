//! Hostile headers and paths: the result of this crate for each, beside the rule of the standard.
//!
//! The tables are in `tests/vectors/headers`. Each row is checked, or the test fails.
#![cfg(feature = "axum")]

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fs,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body, routing::get};
use http::{HeaderName, HeaderValue, Method, Request, Response, Version, request::Parts};
use plimsoll::{
    Key, Limiter, Policy, Quota, RateLimitLayer, Rule,
    by::{self, ClientIp, Or},
    key::Identity,
};
use plimsoll_pace::PaceLayer;
use serde_json::Value;
use tower::{Layer, ServiceExt, service_fn};

const FOLDER: &str = "tests/vectors/headers";
const TABLES: [&str; 7] = [
    "content_type",
    "forwarded",
    "path_parameters",
    "upstream",
    "x_api_key",
    "x_forwarded_for",
    "x_real_ip",
];

/// One row of a table.
struct Row(Value);

impl Row {
    fn text(&self, column: &str) -> &str {
        self.0[column].as_str().unwrap_or_else(|| panic!("{column} of {}", self.0))
    }

    fn lines(&self) -> Vec<HeaderValue> {
        let lines = self.0["lines"].as_array().unwrap();
        lines.iter().map(|line| value(line.as_str().unwrap())).collect()
    }
}

/// Reads a table, whose rows have exactly these columns beside `case`, `ours`, `rfc` and `section`.
fn read(name: &str, others: &[&str]) -> Vec<Row> {
    assert!(TABLES.contains(&name));
    let text = fs::read_to_string(format!("{FOLDER}/{name}.json")).unwrap();
    let table: Value = serde_json::from_str(&text).unwrap();
    assert!(table["about"].is_string());
    let rows: Vec<_> = table["rows"].as_array().unwrap().iter().cloned().map(Row).collect();
    assert!(rows.len() >= 10, "{name}");
    let columns = ["case", "ours", "rfc", "section"];
    let columns: BTreeSet<&str> = columns.iter().chain(others).copied().collect();
    let mut cases = BTreeSet::new();
    for row in &rows {
        let found = row.0.as_object().unwrap().keys().map(String::as_str);
        assert_eq!(found.collect::<BTreeSet<_>>(), columns, "{name}: {}", row.0);
        assert!(!row.text("rfc").is_empty() && !row.text("section").is_empty(), "{}", row.0);
        assert!(cases.insert(row.text("case")), "{name}: {} twice", row.0);
    }
    rows
}

/// Expands `{a*3}` to `aaa`.
fn expand(text: &str) -> String {
    let Some((before, (part, (count, after)))) = text.split_once('{').and_then(|(before, rest)| {
        let (part, rest) = rest.split_once('*')?;
        Some((before, (part, rest.split_once('}')?)))
    }) else {
        return text.to_owned();
    };
    [before, &part.repeat(count.parse().unwrap()), after].concat()
}

/// Returns a header value whose bytes are the characters of `text`.
fn value(text: &str) -> HeaderValue {
    let bytes: Vec<u8> = expand(text).chars().map(|it| u8::try_from(it).unwrap()).collect();
    HeaderValue::from_bytes(&bytes).unwrap()
}

fn request(name: &str, row: &Row) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.extensions.insert(SocketAddr::from(([10, 0, 0, 1], 4711)));
    for line in row.lines() {
        parts.headers.append(name.parse::<HeaderName>().unwrap(), line);
    }
    parts
}

fn addresses(table: &str, header: &str, source: ClientIp) {
    let source = source.ipv6_prefix(128).unwrap();
    let mut wrong = Vec::new();
    for row in read(table, &["lines"]) {
        let found = source.find(&request(header, &row)).unwrap();
        if found != row.text("ours").parse::<IpAddr>().unwrap() {
            wrong.push(format!("{found}: {}", row.0));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_table_has_a_test() {
    let files = fs::read_dir(Path::new(FOLDER)).unwrap();
    let files: BTreeSet<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files, TABLES.map(|name| format!("{name}.json")).into());
}

#[test]
fn forwarded() {
    addresses("forwarded", "forwarded", ClientIp::forwarded(["10.0.0.0/8"]).unwrap());
}

#[test]
fn x_forwarded_for() {
    let source = ClientIp::x_forwarded_for(["10.0.0.0/8"]).unwrap();
    addresses("x_forwarded_for", "x-forwarded-for", source);
}

#[test]
fn x_real_ip() {
    let source = ClientIp::header("x-real-ip", ["10.0.0.0/8"]).unwrap();
    addresses("x_real_ip", "x-real-ip", source);
}

#[test]
fn x_api_key() {
    let extractor = by::header("x-api-key").or(by::constant("the next extractor"));
    for row in read("x_api_key", &["lines"]) {
        let expected = match row.text("ours") {
            "key" => Key::from(row.lines()[0].as_bytes()),
            "anonymous" => Key::ANONYMOUS,
            "next" => Key::from("the next extractor"),
            other => panic!("{other}"),
        };
        let found = extractor(&request("x-api-key", &row));
        assert_eq!(found, Identity::Known(expected), "{}", row.text("case"));
    }
}

#[tokio::test]
async fn content_type() {
    let rule = Rule::new(Policy::new("p", Quota::per_minute(1)).unwrap(), by::constant("all"));
    let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
    let inner = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) };
    let service = layer.layer(service_fn(inner));
    service.clone().oneshot(Request::new(())).await.unwrap();
    let rows = read("content_type", &["method", "version", "lines"]);
    for row in rows {
        let mut request = Request::from_parts(request("content-type", &row), ());
        *request.method_mut() = row.text("method").parse::<Method>().unwrap();
        *request.version_mut() = match row.text("version") {
            "1.0" => Version::HTTP_10,
            "1.1" => Version::HTTP_11,
            "2" => Version::HTTP_2,
            "3" => Version::HTTP_3,
            other => panic!("HTTP/{other}"),
        };
        let response = service.clone().oneshot(request).await.unwrap();
        let headers = response.headers();
        assert_eq!(headers["content-type"], row.text("ours"), "{}", row.text("case"));
        assert_eq!(headers["cache-control"], "no-store", "{}", row.text("case"));
        let grpc = row.text("ours").starts_with("application/grpc");
        assert_eq!(response.status(), if grpc { 200 } else { 429 }, "{}", row.text("case"));
        assert_eq!(headers.contains_key("grpc-status"), grpc, "{}", row.text("case"));
    }
}

#[tokio::test]
async fn path_parameters() {
    for row in read("path_parameters", &["route", "path"]) {
        let found = Arc::new(Mutex::new(None));
        let (note, extractor) = (Arc::clone(&found), by::path_param("p"));
        let identity = move |parts: &Parts| {
            let identity = extractor(parts);
            *note.lock().unwrap() = Some(identity);
            identity
        };
        let rule = Rule::new(Policy::new("p", Quota::per_minute(1)).unwrap(), identity);
        let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
        let app = Router::new().route(row.text("route"), get(|| async {})).layer(layer);
        let request = Request::get(expand(row.text("path"))).body(Body::empty()).unwrap();
        assert_eq!(app.oneshot(request).await.unwrap().status(), 200, "{}", row.text("case"));
        let expected = row.0["ours"].as_str().map(expand).map(Key::from);
        assert_eq!(*found.lock().unwrap(), Some(Identity::from(expected)), "{}", row.text("case"));
    }
}

#[tokio::test(start_paused = true)]
async fn upstream() {
    for row in read("upstream", &["status", "headers"]) {
        let mut answer = Response::new(String::new());
        *answer.status_mut() =
            u16::try_from(row.0["status"].as_u64().unwrap()).unwrap().try_into().unwrap();
        for header in row.0["headers"].as_array().unwrap() {
            let name = header[0].as_str().unwrap().parse::<HeaderName>().unwrap();
            answer.headers_mut().append(name, value(header[1].as_str().unwrap()));
        }
        let service = service_fn(move |_: Request<()>| {
            std::future::ready(Ok::<_, Infallible>(answer.clone()))
        });
        let rule = Rule::new(Policy::new("p", Quota::per_second(9)).unwrap(), by::constant("us"));
        let client = PaceLayer::new(Limiter::in_memory(), rule).layer(service);
        client.clone().oneshot(Request::new(())).await.unwrap();
        let next = client.oneshot(Request::new(())).await;
        let wait = next.err().map(|error| error.retry_after().unwrap().as_secs_f64());
        assert_eq!(wait, row.0["ours"].as_f64(), "{}", row.text("case"));
    }
}
