//! Headers, parsed back by a library for structured fields, and checked byte by byte.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{Empty, Full};
use plimsoll::{
    Policy, RateLimitLayer, Rule,
    layer::{Headers, ResetFormat},
};
use sfv::{BareItem, List, ListEntry, Parser};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{START, get, limiter, policy, rule, text};

/// A service that answers every request the same way.
fn inner() -> impl Service<
    Request<Empty<Bytes>>,
    Response = Response<Full<Bytes>>,
    Error = std::convert::Infallible,
    Future: Send,
> + Clone {
    service_fn(|_: Request<Empty<Bytes>>| async { Ok(Response::new(Full::from("inner"))) })
}

macro_rules! ask {
    ($service:expr) => {
        text($service.ready().await.unwrap().call(get("/")).await.unwrap()).await
    };
}

/// The members of a header field, all its lines together: name, and the integer of each parameter.
fn members(headers: &HeaderMap, field: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let lines: Vec<&str> =
        headers.get_all(field).iter().map(|line| line.to_str().unwrap()).collect();
    let list: List = Parser::new(&lines.join(", ")).parse().unwrap();
    list.into_iter()
        .map(|member| {
            let ListEntry::Item(item) = member else { panic!("an inner list") };
            let BareItem::String(name) = item.bare_item else { panic!("not a string") };
            let parameters = item.params.into_iter().filter_map(|(key, value)| match value {
                BareItem::Integer(number) => Some((key.as_str().to_owned(), number.into())),
                _ => None,
            });
            (name.as_str().to_owned(), parameters.collect())
        })
        .collect()
}

fn value<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers[name].to_str().unwrap()
}

#[tokio::test]
async fn an_allowed_response_carries_all_of_them() {
    let (limiter, _) = limiter();
    let mut service = RateLimitLayer::new(limiter, rule("api", "5/10s")).layer(inner());
    let (status, headers, body) = ask!(service);
    assert_eq!((status, body.as_str()), (200, "inner"));
    assert_eq!(value(&headers, "ratelimit-policy"), r#""api";q=5;w=10"#);
    assert_eq!(value(&headers, "ratelimit"), r#""api";r=4;t=10"#);
    assert_eq!(value(&headers, "x-ratelimit-limit"), "5");
    assert_eq!(value(&headers, "x-ratelimit-remaining"), "4");
    assert_eq!(value(&headers, "x-ratelimit-reset"), "10");
    assert!(!headers.contains_key("retry-after"));
}

#[tokio::test]
async fn waits_are_rounded_up() {
    let (limiter, clock) = limiter();
    let mut service = RateLimitLayer::new(limiter, rule("api", "1/10s")).layer(inner());
    ask!(service);
    for (micros, t, retry_after) in
        [(1, 9, 10), (999_999, 9, 9), (8_000_000, 1, 1), (999_999, 1, 1)]
    {
        clock.advance(Duration::from_micros(micros));
        let (status, headers, _) = ask!(service);
        assert_eq!(status, 429);
        assert_eq!(value(&headers, "ratelimit"), format!(r#""api";r=0;t={t}"#));
        assert_eq!(value(&headers, "retry-after"), retry_after.to_string());
        assert_eq!(value(&headers, "x-ratelimit-reset"), retry_after.to_string());
    }
    // Never zero, and waiting it is enough.
    clock.advance(Duration::from_micros(1_000_000));
    assert_eq!(ask!(service).0, 200);
}

#[tokio::test]
async fn several_policies_are_several_members() {
    let (limiter, _) = limiter();
    let bytes = policy("upload", "1000000/day").with_unit("content-bytes").unwrap();
    let layer = RateLimitLayer::new(limiter, rule("burst", "2/10s"))
        .and(Rule::new(bytes, |_| "everybody").cost(|_| 1000));
    let mut service = layer.layer(inner());
    let (_, headers, _) = ask!(service);
    assert_eq!(
        value(&headers, "ratelimit-policy"),
        r#""burst";q=2;w=10, "upload";q=1000000;qu="content-bytes";w=86400"#
    );
    let [burst, upload] = &members(&headers, "ratelimit")[..] else { panic!("two members") };
    assert_eq!(burst, &("burst".into(), vec![("r".into(), 1), ("t".into(), 10)]));
    // A log with a limit above 10,000 rounds times up to 1/10,000 of its window, here 8.64 s.
    assert_eq!(upload, &("upload".into(), vec![("r".into(), 999_000), ("t".into(), 86_406)]));
    assert_eq!(value(&headers, "x-ratelimit-remaining"), "1");

    ask!(service);
    let (status, headers, _) = ask!(service);
    assert_eq!((status, value(&headers, "retry-after")), (429, "10"));
    // Retry-After does not end before any window that is shown.
    for (_, parameters) in members(&headers, "ratelimit") {
        assert!(parameters.iter().all(|(name, number)| name != "t" || *number <= 10));
    }
    assert_eq!(value(&headers, "x-ratelimit-limit"), "2");
}

#[tokio::test]
async fn stacked_layers_add_members_and_show_the_tightest() {
    for (outer, inner_quota, reset) in [("9/10s", "2/min", "60"), ("2/10s", "9/min", "10")] {
        let (limiter, _) = limiter();
        let stack = RateLimitLayer::new(limiter.clone(), rule("inner", inner_quota)).layer(inner());
        let mut service = RateLimitLayer::new(limiter, rule("outer", outer)).layer(stack);
        let (_, headers, _) = ask!(service);
        for field in ["ratelimit-policy", "ratelimit"] {
            let names: Vec<_> =
                members(&headers, field).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["inner", "outer"]);
        }
        for (field, shown) in [("limit", "2"), ("remaining", "1"), ("reset", reset)] {
            let lines: Vec<_> = headers.get_all(format!("x-ratelimit-{field}")).iter().collect();
            assert_eq!(lines, [shown], "all three of the tightest: {field}");
        }
    }
}

/// Members of two drafts would be a list that no client can parse.
#[tokio::test]
async fn the_headers_of_another_draft_stay_alone() {
    for (name, value) in [
        ("ratelimit", "limit=100, remaining=42, reset=3"),
        ("ratelimit-policy", "100;w=60"),
        ("ratelimit", ""),
    ] {
        let (limiter, _clock) = limiter();
        let app = service_fn(move |_: Request<_>| async move {
            let response = Response::builder().header(name, value);
            Ok::<_, std::convert::Infallible>(response.body(Empty::<Bytes>::new()).unwrap())
        });
        let layer = RateLimitLayer::new(limiter, rule("p", "2/min"));
        let (status, headers, _) = text(layer.layer(app).oneshot(get("/")).await.unwrap()).await;
        assert_eq!(status, 200);
        let lines = ["ratelimit", "ratelimit-policy"]
            .map(|name| headers.get_all(name).iter().cloned().collect::<Vec<_>>())
            .concat();
        assert_eq!(lines, [value], "{name}");
        assert_eq!(headers["x-ratelimit-remaining"], "1");
    }
}

#[tokio::test]
async fn a_partition_key_is_a_digest_under_the_secret() {
    let shown = async |secret: u128, key: &'static str| {
        let (limiter, _) = limiter();
        let rule = Rule::new(policy("api", "5/10s"), move |_| key);
        let headers = Headers::none().draft11().partition_secret(secret);
        let mut service = RateLimitLayer::new(limiter, rule).headers(headers).layer(inner());
        let (_, headers, _) = ask!(service);
        let of = |field: &str| {
            let list: List = Parser::new(value(&headers, field)).parse().unwrap();
            let [ListEntry::Item(item)] = &list[..] else { panic!("one item") };
            let BareItem::ByteSequence(bytes) = &item.params["pk"] else { panic!("no bytes") };
            bytes.clone()
        };
        assert_eq!(of("ratelimit-policy"), of("ratelimit"));
        assert!(value(&headers, "ratelimit").ends_with("=:"), "padded");
        of("ratelimit")
    };
    let alice = shown(1, "alice").await;
    assert_eq!(alice.len(), 8);
    assert_eq!(alice, shown(1, "alice").await, "the same for all instances");
    for other in [shown(1, "bob").await, shown(2, "alice").await, shown(1 << 64, "alice").await] {
        assert_ne!(alice, other);
    }
}

#[tokio::test]
async fn an_inner_denial_keeps_its_retry_after_under_an_outer_layer() {
    let (limiter, _) = limiter();
    let stack = RateLimitLayer::new(limiter.clone(), rule("inner", "1/3s")).layer(inner());
    let mut service = RateLimitLayer::new(limiter, rule("outer", "9/day")).layer(stack);
    ask!(service);
    let (status, headers, _) = ask!(service);
    assert_eq!((status, value(&headers, "retry-after")), (429, "3"));
    let windows = members(&headers, "ratelimit");
    assert_eq!(windows.len(), 2);
    assert!(windows.iter().flat_map(|(_, p)| p).all(|(name, t)| name != "t" || *t <= 3));
}

#[tokio::test]
async fn the_choice_of_headers_is_kept() {
    for (choice, draft, reset) in [
        (Headers::none(), false, None),
        (Headers::none().draft11(), true, None),
        (Headers::none().x_ratelimit(ResetFormat::Seconds), false, Some(10)),
        (Headers::none().x_ratelimit(ResetFormat::Epoch), false, Some(START / 1_000_000 + 10)),
    ] {
        let (limiter, _) = limiter();
        let layer = RateLimitLayer::new(limiter, rule("api", "1/10s")).headers(choice);
        let mut service = layer.layer(inner());
        for status in [200, 429] {
            let (actual, headers, _) = ask!(service);
            assert_eq!(actual, status);
            assert_eq!(headers.contains_key("ratelimit"), draft);
            assert_eq!(headers.contains_key("ratelimit-policy"), draft);
            let actual = headers.get("x-ratelimit-reset").map(|reset| reset.to_str().unwrap());
            assert_eq!(actual, reset.map(|reset| reset.to_string()).as_deref());
            assert_eq!(headers.contains_key("retry-after"), status == 429);
        }
    }
}

#[tokio::test]
async fn jitter_only_lengthens_the_wait() {
    // A part of a second counts as one.
    for (jitter, expected) in [(5_000, &[10, 11, 12, 13, 14, 15][..]), (1, &[10, 11][..])] {
        let (limiter, _) = limiter();
        let layer = RateLimitLayer::new(limiter, rule("api", "1/10s"));
        let mut service = layer.jitter(Duration::from_millis(jitter)).layer(inner());
        ask!(service);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let (_, headers, _) = ask!(service);
            seen.insert(value(&headers, "retry-after").parse::<u64>().unwrap());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn numbers_stay_integers_of_a_structured_field_at_the_bounds() {
    let (limiter, _) = limiter();
    let wide = rule("wide", "1000000000000/400d token-bucket(1000000000000)");
    let short = rule("short", "1/1ms");
    let layer = RateLimitLayer::new(limiter, wide).and(short);
    let mut service = layer.layer(inner());
    let (_, headers, _) = ask!(service);
    let [wide, short] = &members(&headers, "ratelimit-policy")[..] else { panic!("two members") };
    assert_eq!(wide.1, [("q".into(), 1_000_000_000_000), ("w".into(), 34_560_000)]);
    assert_eq!(short.1, [("q".into(), 1), ("w".into(), 1)]);
}

/// The value of `RateLimit-Policy` is kept for each thread until something in it changes.
#[tokio::test]
async fn a_changed_quota_or_unit_shows_in_the_next_response() {
    let api = policy("kept", "100/min");
    let (limiter, _) = limiter();
    let layer = |policy: &Policy| {
        RateLimitLayer::new(limiter.clone(), Rule::new(policy.clone(), |_| "all")).layer(inner())
    };
    let mut service = layer(&api);
    let mut both = RateLimitLayer::new(limiter.clone(), Rule::new(api.clone(), |_| "all"))
        .and(rule("other", "7/s"))
        .layer(inner());
    let mut of_bytes = layer(&policy("kept", "100/min").with_unit("bytes").unwrap());
    for quota in ["100/min", "5000/h", "100/min"] {
        api.set_quota(quota.parse().unwrap());
        let shown = if quota == "5000/h" { "q=5000;w=3600" } else { "q=100;w=60" };
        let limit = if quota == "5000/h" { "5000" } else { "100" };
        for _ in 0..2 {
            let (_, headers, _) = ask!(service);
            assert_eq!(value(&headers, "ratelimit-policy"), format!("\"kept\";{shown}"));
            assert_eq!(value(&headers, "x-ratelimit-limit"), limit);
            let (_, headers, _) = ask!(both);
            let expected = format!("\"kept\";{shown}, \"other\";q=7;w=1");
            assert_eq!(value(&headers, "ratelimit-policy"), expected);
            let (_, headers, _) = ask!(of_bytes);
            let expected = "\"kept\";q=100;qu=\"bytes\";w=60";
            assert_eq!(value(&headers, "ratelimit-policy"), expected);
        }
    }
}
