//! Hostile headers and paths: what this crate makes of each, beside what the standard says.
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
use serde::Deserialize;
use tollgate::{
    Identity, Key, Limiter, Policy, Quota, RateLimitLayer, Rule,
    by::{self, ClientIp, Or},
};
use tower::{Layer, ServiceExt, service_fn};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table<R> {
    about: String,
    rows: Vec<R>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderRow {
    case: String,
    lines: Vec<String>,
    ours: String,
    rfc: String,
    section: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentTypeRow {
    case: String,
    method: String,
    version: String,
    lines: Vec<String>,
    ours: String,
    rfc: String,
    section: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathRow {
    case: String,
    route: String,
    path: String,
    ours: Option<String>,
    rfc: String,
    section: String,
}

const FOLDER: &str = "tests/vectors/headers";
const TABLES: [&str; 6] =
    ["content_type", "forwarded", "path_parameters", "x_api_key", "x_forwarded_for", "x_real_ip"];

/// Reads a table. `columns` returns the case, and the texts that must not be empty.
fn read<R: serde::de::DeserializeOwned>(name: &str, columns: fn(&R) -> [&str; 3]) -> Vec<R> {
    assert!(TABLES.contains(&name));
    let text = fs::read_to_string(format!("{FOLDER}/{name}.json")).unwrap();
    let table: Table<R> = serde_json::from_str(&text).unwrap();
    assert!(!table.about.is_empty() && table.rows.len() >= 10, "{name}");
    let mut cases = BTreeSet::new();
    for row in &table.rows {
        let columns = columns(row);
        assert!(columns.iter().all(|text| !text.is_empty()), "{name}: {columns:?}");
        assert!(cases.insert(columns[0].to_owned()), "{name}: {} twice", columns[0]);
    }
    table.rows
}

fn headers(name: &str) -> Vec<HeaderRow> {
    read(name, |row: &HeaderRow| [&row.case, &row.rfc, &row.section])
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

fn request(name: &str, lines: &[String]) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.extensions.insert(SocketAddr::from(([10, 0, 0, 1], 4711)));
    for line in lines {
        parts.headers.append(name.parse::<HeaderName>().unwrap(), value(line));
    }
    parts
}

fn addresses(table: &str, header: &str, source: ClientIp) {
    let source = source.ipv6_prefix(128).unwrap();
    let mut wrong = Vec::new();
    for row in headers(table) {
        let found = source.find(&request(header, &row.lines)).unwrap();
        if found != row.ours.parse::<IpAddr>().unwrap() {
            wrong.push(format!("{}: {found}, the table has {}", row.case, row.ours));
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
    for row in headers("x_api_key") {
        let expected = match row.ours.as_str() {
            "key" => Key::from(value(&row.lines[0]).as_bytes()),
            "anonymous" => Key::ANONYMOUS,
            "next" => Key::from("the next extractor"),
            other => panic!("{}: {other}", row.case),
        };
        let found = extractor(&request("x-api-key", &row.lines));
        assert_eq!(found, Identity::Known(expected), "{}", row.case);
    }
}

#[tokio::test]
async fn content_type() {
    let rule = Rule::new(Policy::new("p", Quota::per_minute(1)).unwrap(), by::constant("all"));
    let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
    let inner = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) };
    let service = layer.layer(service_fn(inner));
    service.clone().oneshot(Request::new(())).await.unwrap();
    let rows = read("content_type", |row: &ContentTypeRow| [&row.case, &row.rfc, &row.section]);
    for row in rows {
        let mut request = Request::from_parts(request("content-type", &row.lines), ());
        *request.method_mut() = row.method.parse::<Method>().unwrap();
        *request.version_mut() = match row.version.as_str() {
            "1.0" => Version::HTTP_10,
            "1.1" => Version::HTTP_11,
            "2" => Version::HTTP_2,
            "3" => Version::HTTP_3,
            other => panic!("{}: HTTP/{other}", row.case),
        };
        let response = service.clone().oneshot(request).await.unwrap();
        let headers = response.headers();
        assert_eq!(headers["content-type"], row.ours, "{}", row.case);
        assert_eq!(headers["cache-control"], "no-store", "{}", row.case);
        let grpc = row.ours.starts_with("application/grpc");
        assert_eq!(response.status(), if grpc { 200 } else { 429 }, "{}", row.case);
        assert_eq!(headers.contains_key("grpc-status"), grpc, "{}", row.case);
    }
}

#[tokio::test]
async fn path_parameters() {
    for row in read("path_parameters", |row: &PathRow| [&row.case, &row.rfc, &row.section]) {
        let found = Arc::new(Mutex::new(None));
        let (note, extractor) = (Arc::clone(&found), by::path_param("p"));
        let identity = move |parts: &Parts| {
            let identity = extractor(parts);
            *note.lock().unwrap() = Some(identity);
            identity
        };
        let rule = Rule::new(Policy::new("p", Quota::per_minute(1)).unwrap(), identity);
        let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
        let app = Router::new().route(&row.route, get(|| async {})).layer(layer);
        let request = Request::get(expand(&row.path)).body(Body::empty()).unwrap();
        assert_eq!(app.oneshot(request).await.unwrap().status(), 200, "{}", row.case);
        let expected = row.ours.as_deref().map(expand).map(Key::from);
        assert_eq!(*found.lock().unwrap(), Some(Identity::from(expected)), "{}", row.case);
    }
}
