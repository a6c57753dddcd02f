//! Extractors, tiers, routes and costs.

use http::{Request, Version, request::Parts};
use plimsoll::{
    Key, Policy, Quota,
    by::{self, And, Or},
    cost,
    key::Identity,
    route,
    rule::{Rules, Tiers},
};

fn parts(request: http::request::Builder) -> Parts {
    request.body(()).unwrap().into_parts().0
}

fn known(key: impl Into<Key>) -> Identity {
    Identity::Known(key.into())
}

#[test]
fn headers_and_tokens() {
    let key = by::header("x-api-key");
    assert_eq!(key(&parts(Request::get("/").header("x-api-key", "a"))), known("a"));
    assert_eq!(key(&parts(Request::get("/"))), Identity::Unknown);
    assert_eq!(key(&parts(Request::get("/").header("x-api-key", ""))), Identity::Unknown);
    let raw = http::HeaderValue::from_bytes(b"\xff\xfe").unwrap();
    assert_eq!(key(&parts(Request::get("/").header("x-api-key", raw))), known(&b"\xff\xfe"[..]));
    let (long, longer) = ("k".repeat(64 << 10), "k".repeat((64 << 10) + 1));
    let of = |value: &str| key(&parts(Request::get("/").header("x-api-key", value)));
    assert_ne!(of(&long), of(&longer));
    assert_eq!(of(&long), of(&long));

    let token = by::bearer_token();
    let of = |value: &str| token(&parts(Request::get("/").header("authorization", value)));
    assert_eq!(of("Bearer abc"), known("abc"));
    assert_eq!(of("bearer  abc "), known("abc"));
    for none in ["Bearer ", "Bearer", "Basic abc", "", "Bearerabc"] {
        assert_eq!(of(none), Identity::Unknown, "{none:?}");
    }
}

/// A second value must not give a client another budget than its key has.
#[test]
fn a_header_with_several_values_does_not_reach_the_next_extractor() {
    let anonymous = known(Key::ANONYMOUS);
    let twice = |name: &'static str, values: [&str; 2]| {
        let request = Request::get("/").header(name, values[0]).header(name, values[1]);
        parts(request.header("x-other", "other"))
    };
    let key = by::header("x-api-key").or(by::header("x-other"));
    assert_eq!(key(&twice("x-api-key", ["a", "b"])), anonymous);
    assert_eq!(key(&twice("x-api-key", ["", "b"])), anonymous);
    assert_eq!(key(&twice("x-api-key", ["b", ""])), anonymous);
    assert_eq!(key(&twice("x-api-key", ["a", "a"])), known("a"), "one value, whichever is read");
    assert_eq!(key(&twice("x-api-key", ["", ""])), known("other"), "as without the header");
    let token = by::bearer_token().or(by::header("x-other"));
    assert_eq!(token(&twice("authorization", ["Bearer a", "Bearer b"])), anonymous);
    assert_eq!(token(&twice("authorization", ["Basic a", "Bearer b"])), anonymous);
    assert_eq!(token(&twice("authorization", ["Bearer a", "Bearer a"])), known("a"));
    let joined = by::header("x-api-key").and(by::header("x-other"));
    assert_eq!(
        joined(&twice("x-api-key", ["a", "b"])),
        Identity::Known(Key::from((Key::ANONYMOUS, "other")))
    );
}

#[test]
fn names_of_accounts() {
    assert_ne!(Key::from("Dave"), Key::from("dave"), "a text is charged as it is written");
    assert_ne!(Key::from("dave "), Key::from("dave"));
    for spelling in
        ["dave", "Dave", "DAVE", " dave", "dave ", "\tdAvE\r\n", "dave\0", "\u{a0}dave\u{3000}"]
    {
        assert_eq!(Key::from_name(spelling), Key::from("dave"), "{spelling:?}");
    }
    for (one, other) in
        [("Straße", "STRASSE"), ("ΟΔΟΣ", "οδος"), ("ÉMILE", "émile"), ("\u{212a}im", "kim")]
    {
        assert_eq!(Key::from_name(one), Key::from_name(other), "{one} {other}");
    }
    // As the docs say, these names stay different.
    for (one, other) in [
        ("\u{e9}", "e\u{301}"),
        ("da\u{200b}ve", "dave"),
        ("\u{430}dam", "adam"),
        ("d.ave+1@example.com", "dave@example.com"),
        ("da ve", "dave"),
    ] {
        assert_ne!(Key::from_name(one), Key::from_name(other), "{one} {other}");
    }
    assert_eq!(Key::from_name(" \n"), Key::from_name(""));
    let long = "ẞ".repeat(1 << 16);
    assert_eq!(Key::from_name(&long), Key::from_name(&long.to_lowercase()));
}

#[test]
fn joined() {
    let (a, b) = (by::header("a"), by::header("b"));
    let both = a.clone().and(b.clone());
    let of = |a: &str, b: &str| both(&parts(Request::get("/").header("a", a).header("b", b)));
    assert_eq!(of("x", "y"), of("x", "y"));
    assert_ne!(of("x", "yz"), of("xy", "z"));
    assert_ne!(of("x", "y"), of("y", "x"));
    assert_ne!(of("xy", "z"), known("xyz"));
    assert_eq!(both(&parts(Request::get("/").header("a", "x"))), Identity::Unknown);
    let exempt = b.clone().and(|_: &Parts| Identity::Exempt);
    assert_eq!(exempt(&parts(Request::get("/"))), Identity::Exempt);
    let nobody = (|_: &Parts| Identity::Exempt).or(by::header("b"));
    assert_eq!(nobody(&parts(Request::get("/").header("b", "y"))), Identity::Exempt);
    let either = a.or(b);
    assert_eq!(either(&parts(Request::get("/").header("b", "y"))), known("y"));
    let (address, spelled) = (std::net::IpAddr::from([65, 66, 67, 68]), "ABCD");
    assert_ne!(Key::from(address), Key::from(spelled), "nobody spends for an address by its bytes");
}

#[test]
fn values() {
    struct User(u64);
    let user = by::extension(|user: &User| user.0);
    let request = parts(Request::get("/"));
    assert_eq!(user(&request), Identity::Unknown);
    let (mut with, ()) = Request::new(()).into_parts();
    with.extensions.insert(std::sync::Arc::new(User(7)));
    let shared = by::extension(|user: &std::sync::Arc<User>| user.0);
    assert_eq!(shared(&with), known(7));
    assert_eq!(by::constant("all")(&request), known("all"));
}

#[test]
fn tiers_fall_to_a_default() {
    let policy = |name, limit| Policy::new(name, Quota::per_minute(limit)).unwrap();
    let tiers = Tiers::<String>::new(policy("free", 1)).tier("paid", policy("paid", 2));
    let tier = |parts: &Parts| Some(parts.headers.get("tier")?.to_str().ok()?.to_owned());
    let rules = Rules::new(tiers.rule(tier, by::constant("all")));
    let chosen = |request| {
        let request = parts(request);
        let charges = rules.charges(&request).unwrap().charges;
        charges[0].policy().name().to_owned()
    };
    assert_eq!(chosen(Request::get("/").header("tier", "paid")), "paid");
    assert_eq!(chosen(Request::get("/").header("tier", "Paid")), "free");
    assert_eq!(chosen(Request::get("/").header("tier", "gold")), "free");
    assert_eq!(chosen(Request::get("/")), "free");
}

#[test]
fn costs() {
    let length = cost::content_length(1024, 99);
    let of = |length_header: &str| {
        length(&parts(Request::post("/").header("content-length", length_header)))
    };
    assert_eq!([of("0"), of("1"), of("1024"), of("1025")], [0, 1, 1, 2]);
    assert_eq!(of("18446744073709551615"), u64::MAX.div_ceil(1024));
    assert_eq!([of("-1"), of("x"), of("18446744073709551616")], [99; 3]);
    assert_eq!([of("+1"), of(""), of("1 1"), of("0x1"), of("1,1")], [99; 5]);
    assert_eq!(length(&parts(Request::get("/"))), 0, "no body");
    let chunked = Request::post("/").header("transfer-encoding", "chunked");
    assert_eq!(length(&parts(chunked)), 99);
    let both =
        Request::post("/").header("transfer-encoding", "chunked").header("content-length", "1");
    assert_eq!(length(&parts(both)), 99, "a length that the server does not go by");
    let twice = Request::post("/").header("content-length", "1").header("content-length", "1");
    assert_eq!(length(&parts(twice)), 99);
    assert_eq!(length(&parts(Request::post("/").version(Version::HTTP_2))), 99);

    let table = cost::by_route([("/search", 5), ("POST /search", 7), ("GET /x", 2)], |_| 1);
    let of = |method: &str, path: &str| table(&parts(Request::builder().method(method).uri(path)));
    assert_eq!(of("GET", "/search?q=1"), 5);
    assert_eq!(of("POST", "/search"), 7);
    assert_eq!(of("HEAD", "/x"), 2);
    assert_eq!([of("GET", "/x"), of("PUT", "/x"), of("GET", "/y")], [2, 1, 1]);
    let by_method = |parts: &Parts| if parts.method == http::Method::PUT { 3 } else { 1 };
    let table = cost::by_route([("/search", 2), ("/free", 0)], by_method);
    let of = |method: &str, path: &str| table(&parts(Request::builder().method(method).uri(path)));
    assert_eq!([of("PUT", "/search"), of("PUT", "/"), of("GET", "/")], [2, 3, 1]);
    // Another spelling costs no less than the request that was sent.
    assert_eq!([of("PUT", "/%66ree"), of("GET", "/%73earch")], [3, 2]);
    assert!(route::is("POST /a")(&parts(Request::post("/a"))));
    assert!(!route::is("POST /a")(&parts(Request::get("/a"))));
}

/// A limit that would apply to nothing is a mistake that shows when the program starts.
#[test]
fn routes_that_match_no_request_panic() {
    for wrong in [
        "login",
        "",
        " /login",
        "post /login",
        "POST login",
        "POST  /login",
        "/a?b=1",
        "/a b",
        "/a#b",
        "/a\n",
        "P{T /",
        "ANY /x",
        "/users/:id",
        "/files/*path",
        "/users/{id",
        "GET /users/{}",
    ] {
        assert!(std::panic::catch_unwind(|| drop(route::is(wrong))).is_err(), "{wrong:?}");
        assert!(route::validate(wrong).is_err(), "{wrong:?}");
        let table = || drop(cost::by_route([(wrong, 1)], |_| 1));
        assert!(std::panic::catch_unwind(table).is_err(), "{wrong:?}");
    }
}

/// Without the feature `axum`, routes have no parameters.
#[cfg(feature = "axum")]
#[test]
fn a_route_is_refused_with_what_is_meant() {
    for (wrong, meant) in [
        ("/users/:id", "/users/{id}"),
        ("GET /users/:id/posts/:post", "GET /users/{id}/posts/{post}"),
        ("/files/*path", "/files/{*path}"),
        ("/files/*", "/files/{*rest}"),
        ("/files/**", "/files/{*rest}"),
        ("/a/*/b", "/a/{rest}/b"),
        ("/users/<id>", "/users/{id}"),
        ("/users/{id", "/users/{id}"),
        ("GET /users/{}", "GET /users/{name}"),
        ("ANY /x", "/x"),
        ("* /x", "/x"),
        ("get /x", "GET /x"),
        ("GET  /x", "GET /x"),
        (" /x ", "/x"),
        ("x/y", "/x/y"),
        ("POST login", "POST /login"),
        ("/search?q=1", "/search"),
        ("/search#top", "/search"),
        ("https://api.example.com/v1/:id?x#y", "/v1/{id}"),
        ("https://api.example.com", "/"),
    ] {
        let message = route::validate(wrong).unwrap_err().to_string();
        let start = format!("the route is {wrong:?} (did you mean {meant:?}?), allowed is ");
        assert!(message.starts_with(&start), "{message}");
    }
    for (wrong, allowed) in [
        ("/{*rest}/x", "\"{*name}\" at the end of the path"),
        ("/{a}-{b}", "one parameter in a segment, at its end"),
        ("/{a}{b}", "one parameter in a segment, at its end"),
        ("/a}", "a parameter with a name in braces, \"{name}\""),
        ("/a b", "\"/path\", or \"METHOD /path\" with the method in upper case"),
        ("/a\u{1}", "a path of characters that a client may send"),
    ] {
        let message = route::validate(wrong).unwrap_err().to_string();
        assert_eq!(message, format!("the route is {wrong:?}, allowed is {allowed}"));
    }
}

/// An entry that another one hides would match no request.
#[test]
fn each_entry_of_a_table_of_costs_matches() {
    let twice = || drop(cost::by_route([("/a", 1), ("GET /a", 2), ("/a", 3)], |_| 1));
    assert!(std::panic::catch_unwind(twice).is_err());
    let cost = cost::by_route([("/a", 1), ("GET /a", 2), ("HEAD /a", 3)], |_| 9);
    for (method, expected) in [("HEAD", 3), ("GET", 2), ("PUT", 1)] {
        let request = Request::builder().method(method).uri("/a").body(()).unwrap();
        assert_eq!(cost(&request.into_parts().0), expected, "{method}");
    }
}

#[cfg(feature = "axum")]
mod routes {
    use std::{
        panic::catch_unwind,
        sync::{Arc, Mutex},
    };

    use axum::{Router, body::Body, middleware::from_fn, routing::get};
    use tower::ServiceExt;

    use super::*;

    /// The router of axum itself says which paths are right.
    #[test]
    fn a_path_is_refused_if_the_router_refuses_it() {
        const SEGMENTS: [&str; 26] = [
            "a",
            "",
            "{id}",
            "{*id}",
            ":id",
            "*id",
            "{}",
            "{*}",
            "{id",
            "id}",
            "{{a}}",
            "{{a}",
            "{a}}",
            "x{id}",
            "{id}x",
            "{a}{b}",
            "a:b",
            "a*b",
            "x{*id}",
            "{*id}x",
            "{i*d}",
            "{a.b-c}",
            "%7B",
            "{id:[0-9]+}",
            "..",
            "\u{e9}",
        ];
        let mut accepted = 0;
        for first in SEGMENTS {
            for second in [None].into_iter().chain(SEGMENTS.map(Some)) {
                let second = second.map_or(String::new(), |second| format!("/{second}"));
                let path = format!("/{first}{second}");
                let routed = catch_unwind(|| Router::<()>::new().route(&path, get(|| async {})));
                assert_eq!(route::validate(&path).is_ok(), routed.is_ok(), "{path}");
                accepted += u32::from(routed.is_ok());
            }
        }
        assert!((100..600).contains(&accepted), "{accepted}");
    }

    /// Returns the identity that an extractor finds inside of a real router.
    async fn seen(
        ask: impl Fn(&Parts) -> Identity + Clone + Send + Sync + 'static,
        path: &str,
    ) -> Option<Identity> {
        let said = Arc::new(Mutex::new(None));
        let note = Arc::clone(&said);
        let layer =
            from_fn(move |request: axum::extract::Request, next: axum::middleware::Next| {
                let (parts, body) = request.into_parts();
                *note.lock().unwrap() = Some(ask(&parts));
                next.run(axum::extract::Request::from_parts(parts, body))
            });
        let inner = Router::new().route("/users/{id}", get(|| async {})).layer(layer.clone());
        let service = Router::new()
            .route("/x_{id}", get(|| async {}))
            .route("/files/{*file}", get(|| async {}))
            .layer(layer.clone());
        // A router as a service has parameters of its own, here with the name of an outer one.
        let twice = Router::new().route("/{id}", get(|| async {})).layer(layer.clone());
        let app = Router::new()
            .route("/things/{id}/parts/{part}", get(|| async {}))
            .route("/files/{*path}", get(|| async {}))
            .route("/user_{name}", get(|| async {}))
            .route("/v1/{*rest}", get(|| async {}))
            .layer(layer)
            .nest("/api/{tenant}", inner)
            .nest("/svc_{zone}", service)
            .nest_service("/twice/{id}", twice);
        app.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        said.lock().unwrap().take()
    }

    #[tokio::test]
    async fn parameters_and_patterns() {
        let part = |name| by::path_param(name);
        assert_eq!(seen(part("id"), "/things/7/parts/8").await, Some(known("7")));
        assert_eq!(seen(part("part"), "/things/7/parts/8").await, Some(known("8")));
        let owned = by::path_param("part".to_owned());
        assert_eq!(seen(owned, "/things/7/parts/8").await, Some(known("8")));
        assert_eq!(seen(part("id"), "/things/%41%62/parts/8").await, Some(known("Ab")));
        assert_eq!(seen(part("id"), "/things/100%/parts/8").await, Some(known("100%")));
        assert_eq!(seen(part("path"), "/files/a/b%20c").await, Some(known("a/b c")));
        assert_eq!(seen(part("name"), "/user_dave").await, Some(known("dave")));
        assert_eq!(seen(part("name"), "/user_eve").await, Some(known("eve")));
        assert_eq!(seen(part("name"), "/user_%65ve").await, Some(known("eve")));
        assert_eq!(seen(part("rest"), "/v1/a/b").await, Some(known("a/b")));
        assert_eq!(seen(part("rest"), "/v1/").await, Some(Identity::Unknown), "not empty");
        assert_eq!(seen(part("id"), "/things/%ff/parts/8").await, Some(Identity::Unknown));
        assert_eq!(seen(part("nope"), "/things/7/parts/8").await, Some(Identity::Unknown));
        assert_eq!(seen(part("id"), "/api/acme/users/9").await, Some(known("9")));
        assert_eq!(seen(part("tenant"), "/api/acme/users/9").await, Some(known("acme")));
        assert_eq!(seen(part("id"), "/svc_eu/x_7").await, Some(known("7")));
        assert_eq!(seen(part("zone"), "/svc_eu/x_7").await, Some(known("eu")));
        assert_eq!(seen(part("file"), "/svc_eu/files/a/b").await, Some(known("a/b")));
        assert_eq!(seen(part("id"), "/twice/1/2").await, Some(known("2")));
        let route = "/things/{id}/parts/{part}";
        assert_eq!(seen(by::matched_route(), "/things/7/parts/8").await, Some(known(route)));
        assert_eq!(seen(by::matched_route(), "/none").await, Some(Identity::Unknown));
        let nested = "/api/{tenant}/users/{id}";
        assert_eq!(seen(by::matched_route(), "/api/acme/users/9").await, Some(known(nested)));
        let is = |parts: &Parts| {
            let found = ["/users/{id}", nested].map(route::is).map(|is| is(parts));
            Identity::from(Key::from(format!("{found:?}")))
        };
        assert_eq!(seen(is, "/api/acme/users/9").await, Some(known("[true, true]")));
        let spelled = "/things/%00a%7f%00%00%01/parts/8";
        let address = std::net::IpAddr::from([127, 0, 0, 1]);
        assert_ne!(seen(part("id"), spelled).await, Some(known(address)));
    }
}
