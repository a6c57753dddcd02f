//! The files of envoyproxy/ratelimit: they are read, decided and shown to operators.

use std::{fs, net::TcpStream};

use plimsoll_testing::servers::directory;
use serde_json::json;

use crate::support::{Reply, Service, assert_described, exchange, program, send};

const LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// Asks for a decision on descriptors with one entry each.
fn ask(service: &Service, entries: &[(&str, &str)]) -> Reply {
    let descriptors: Vec<_> = entries
        .iter()
        .map(|(key, value)| json!({ "entries": [{ "key": key, "value": value }] }))
        .collect();
    let body = json!({ "domain": "shop", "descriptors": descriptors }).to_string();
    let head = "POST /json HTTP/1.1\r\nhost: localhost\r\nconnection: close";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut stream = TcpStream::connect(&service.http).unwrap();
    let reply = exchange(&mut stream, request.as_bytes()).unwrap();
    assert_described("POST", "/json", &reply);
    reply
}

fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = program().args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_file_with_a_domain_is_one_of_envoyproxy_and_operators_see_its_limits() {
    let folder = directory();
    fs::write(folder.join("shop.yaml"), LIMITS).unwrap();
    let token = "token-of-the-operator-77";
    let variables = [("PLIMSOLL_ADMIN_TOKEN", token)];
    let path = folder.to_str().unwrap();
    let service = Service::start_with(&["--envoy-config", path], &variables);
    // The second request is denied by the tenant, and the user keeps a unit.
    let both = [("user", "alice"), ("tenant", "a")];
    assert_eq!([(); 2].map(|()| ask(&service, &both).status), [200, 429]);
    assert_eq!([(); 2].map(|()| ask(&service, &both[..1]).status), [200, 429]);
    let authorization = format!("Bearer {token}");
    let api = |path: &str| {
        send(&service.admin, "GET", path, &[("authorization", &*authorization)], b"").text()
    };
    let policies = api("/api/policies");
    assert!(policies.contains("2/min sliding-buckets(30)"), "{policies}");
    let metrics = send(&service.admin, "GET", "/metrics", &[], b"").text();
    assert!(metrics.contains("ratelimit_service_rate_limit_over_limit"), "{metrics}");
    // A change of the folder acts without a restart.
    fs::write(folder.join("shop.yaml"), LIMITS.replace("_unit: 2", "_unit: 9")).unwrap();
    let begin = std::time::Instant::now();
    while ask(&service, &both[..1]).status != 200 {
        assert!(begin.elapsed().as_secs() < 10, "{}", service.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_switches_of_flags_and_of_the_table_act() {
    let folder = directory();
    let limits = folder.join("shop.yaml");
    fs::write(&limits, LIMITS).unwrap();
    let settings = folder.join("settings.toml");
    let text = "envoy-config = ['shop.yaml']\n[envoy]\ndecide = 'each'\nshadow-mode = false\n";
    fs::write(&settings, text).unwrap();
    let both = [("user", "alice"), ("tenant", "a")];
    let of_file = Service::start(&["--settings", settings.to_str().unwrap()]);
    assert_eq!([(); 2].map(|()| ask(&of_file, &both).status), [200, 429]);
    // The denied request was counted.
    assert_eq!(ask(&of_file, &both[..1]).status, 429);
    let flags = ["--settings", settings.to_str().unwrap(), "--envoy-decide", "together"];
    let of_flags = Service::start(&flags);
    assert_eq!([(); 2].map(|()| ask(&of_flags, &both).status), [200, 429]);
    assert_eq!(ask(&of_flags, &both[..1]).status, 200);
    for (flag, value, expected) in [
        ("--envoy-decide", "all", "expected `together` or `each`"),
        ("--envoy-algorithm", "leaky", "token-bucket"),
    ] {
        let (code, _, error) = output(&["--check", flag, value]);
        assert!(code.is_some_and(|code| code > 0) && error.contains(expected), "{error}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn mistakes_are_found_before_the_start() {
    let folder = directory();
    let path = folder.to_str().unwrap();
    let file = folder.join("shop.yaml");
    fs::write(&file, LIMITS).unwrap();
    let (code, out, _) = output(&["--check", "--envoy-config", path]);
    let valid =
        "the settings and the limits are valid: 0 policies, 1 domain of envoyproxy/ratelimit\n";
    assert_eq!((code, &*out), (Some(0), valid));
    fs::write(&file, LIMITS.replace("minute", "minutes")).unwrap();
    let (code, _, error) = output(&["--check", "--envoy-config", path]);
    assert!(code == Some(1) && error.contains("did you mean `minute`"), "{error}");
    // The fields that have no effect are named.
    let limits = LIMITS.replace("  - key: tenant", "  - key: tenant\n    detailed_metric: true");
    fs::write(&file, limits).unwrap();
    let (code, out, _) = output(&["--check", "--envoy-config", path]);
    assert!(code == Some(0) && out.contains("warning: `detailed_metric` of the files"), "{out}");
    // Files of the other format are not taken for files of plimsoll.
    let (code, _, error) = output(&["--check", "--config", file.to_str().unwrap()]);
    assert!(code == Some(1) && error.contains("`domain`"), "{error}");
    fs::remove_dir_all(folder).unwrap();
}
