//! Keys, costs and filters.

use plimsoll::Key;

use super::*;
use crate::replay::log::{CostExpression, Filter, KeyExpression};

const LINE: &str = r#"{"ts":1741944413,"ip":"203.0.113.77","method":"GET","path":"/api/a?x=1","host":"api.example:80","status":404,"bytes":2048,"user":"al ice","http_x_api_key":"k","ratio":"0.5"}"#;

fn key(text: &str) -> Option<Key> {
    let mut found = None;
    with_line(LINE, &ReadOptions::default(), |entry| {
        found = text.parse::<KeyExpression>().unwrap().key(entry);
    });
    found
}

#[test]
fn a_key_is_the_key_of_a_rule_of_a_service() {
    let ip = |text: &str| Key::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(key("ip"), Some(ip("203.0.113.77")));
    assert_eq!(key("ip/24"), Some(ip("203.0.113.0")));
    assert_eq!(key("ip/48"), Some(ip("203.0.113.77")));
    assert_eq!(key("header:X-API-Key"), Some(Key::from("k")));
    assert_eq!(key("field:user"), Some(Key::from("al ice")));
    assert_eq!(key("path"), Some(Key::from("/api/a")));
    assert_eq!(key("host"), Some(Key::from("api.example")));
    assert_eq!(key("ip+path"), Some(Key::from((ip("203.0.113.77"), Key::from("/api/a")))));
    let four = (Key::from("GET"), Key::from("404"), Key::from("k"), ip("203.0.113.0"));
    assert_eq!(key("method + status + header:x-api-key + ip/24"), Some(Key::from(four)));
    assert_eq!(key("all"), Some(Key::ANONYMOUS));
    assert_eq!(key("ip+header:x-none"), None);
    let line = LINE.replace("203.0.113.77", "2001:db8:1:2:3::9");
    with_line(line, &ReadOptions::default(), |entry| {
        let key = |text: &str| text.parse::<KeyExpression>().unwrap().key(entry);
        assert_eq!(key("ip"), Some(ip("2001:db8:1:2::")));
        assert_eq!(key("ip/24"), key("ip"));
        assert_eq!(key("ip/48"), Some(ip("2001:db8:1::")));
    });
    for text in ["", "ip+", "ip/7", "ip/65", "ip/x", "header:", "cookie:a", "IP", "ip+ip+ip+ip+ip"]
    {
        let error = text.parse::<KeyExpression>().unwrap_err().to_string();
        assert!(error.contains("allowed is ip, ip/8"), "{text}: {error}");
    }
    for text in ["ip", "ip/24", "ip/48", "ip+path", "header:x", "all", "field:user+method"] {
        assert_eq!(text.parse::<KeyExpression>().unwrap().to_string(), text);
    }
}

#[test]
fn a_cost_is_a_number() {
    let combined = r#"203.0.113.7 - bo [14/Mar/2025:01:06:53 +0000] "GET /a HTTP/1.1" 200 512"#;
    with_line(combined, &ReadOptions::default(), |entry| {
        let cost = |text: &str| text.parse::<CostExpression>().unwrap().cost(entry);
        // This format calls them `body_bytes_sent`.
        assert_eq!(["bytes", "field:bytes", "field:body_bytes_sent"].map(cost), [Some(512); 3]);
        assert_eq!(cost("field:path"), None);
    });
    with_line(LINE, &ReadOptions::default(), |entry| {
        let cost = |text: &str| text.parse::<CostExpression>().unwrap().cost(entry);
        assert_eq!(cost("7"), Some(7));
        assert_eq!(cost("bytes"), Some(2048));
        assert_eq!(cost("field:bytes"), Some(2048));
        assert_eq!(cost("field:ratio"), None);
        assert_eq!(cost("field:none"), None);
    });
    for text in ["", "-1", "1.5", "path", "field:"] {
        let error = text.parse::<CostExpression>().unwrap_err().to_string();
        assert!(error.contains("allowed is a whole number, bytes, field:NAME"), "{error}");
    }
}

#[test]
fn a_filter_has_terms_that_all_hold() {
    with_line(LINE, &ReadOptions::default(), |entry| {
        let matches = |text: &str| text.parse::<Filter>().unwrap().matches(entry);
        for text in [
            "path=/api/* status<500 method!=OPTIONS",
            "status>=404 status<=404 status>403 status=404",
            "status=4xx",
            "status=2xx|4xx",
            "method=HEAD|GET",
            "ip=203.0.113.0/24",
            "ip!=192.0.2.0/24|2001:db8::/32",
            "ip=*",
            "field:user=\"al ice\"",
            "header:x-none!=a",
            "header:x-api-key=*",
            "target=*x=1",
            "bytes>1000",
            "host=api.example",
        ] {
            assert!(matches(text), "{text}");
        }
        for text in [
            "path=/api/* status<404",
            "path=/api",
            "header:x-none=*",
            "header:x-none<5",
            "field:ratio<5",
            "ip=203.0.113.0/26",
            "status=5xx",
            "method!=*",
        ] {
            assert!(!matches(text), "{text}");
        }
    });
    for (text, reason) in [
        ("", "the filter is empty"),
        ("path", "term 1 of the filter, \"path\": it has no operator; allowed is =, !="),
        ("method=GET statsu<500", "term 2 of the filter, \"statsu<500\": \"statsu\" is no value"),
        ("path<5", "path is no number; allowed is = or !="),
        ("status<5x", "\"5x\" is no whole number"),
        ("ip=203.0.113", "\"203.0.113\" is not an address or a network"),
        ("path=\"/a b", "a quote of the filter"),
        ("path!/a", "it has no operator"),
    ] {
        let error = text.parse::<Filter>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}
