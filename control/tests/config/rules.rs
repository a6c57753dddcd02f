//! The effect of the fields of a rule on requests.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Body,
    extract::connect_info::MockConnectInfo,
    http::{Request, Response},
    routing::any,
};
use plimsoll::Limiter;
use plimsoll_control::{Claims, Config, Format};
use tower::ServiceExt;

/// Sends requests to a router with the limits of a text. Each is a method, a path and headers.
struct App(Router);

impl App {
    fn new(text: &str) -> Self {
        let config = Config::from_text(text, Format::Toml).unwrap_or_else(|it| panic!("{it}"));
        let layer = config.layer(&Limiter::in_memory()).expect("rules");
        let router = Router::new()
            .route("/", any(|| async {}))
            .route("/login", any(|| async {}))
            .route("/users/{id}", any(|| async {}))
            .layer(layer)
            .layer(MockConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711))));
        Self(router)
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.0.clone().oneshot(request).await.expect("a response")
    }

    /// Returns the units that are left after a request, or `None` for a denial.
    async fn left(&self, line: &str, headers: &[(&str, &str)]) -> Option<u64> {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        left(&self.send(request.body(Body::empty()).expect("a request")).await)
    }
}

fn left(response: &Response<Body>) -> Option<u64> {
    let left = response.headers().get("x-ratelimit-remaining");
    response
        .status()
        .is_success()
        .then(|| left.map_or("0", |it| it.to_str().unwrap()))?
        .parse()
        .ok()
}

fn with_key(key: &str) -> App {
    App::new(&format!("policies.p = '9/h'\nrules = [{{ policy = 'p', key = {key} }}]"))
}

#[tokio::test]
async fn each_key_has_a_budget() {
    let forwarded = "\n[client_ip]\nheader = 'x-forwarded-for'\ntrusted_proxies = ['10.0.0.0/8']\n";
    let behind_proxy = App::new(&format!(
        "policies.p = '9/h'\nrules = [{{ policy = 'p', key = 'client_ip' }}]\n{forwarded}"
    ));
    // Two requests with the same key, and one with another key.
    for (app, one, other) in [
        (with_key("{ header = 'X-API-Key' }"), [("x-api-key", "a")], [("x-api-key", "b")]),
        (
            with_key("'bearer_token'"),
            [("authorization", "Bearer a")],
            [("authorization", "Bearer b")],
        ),
        (with_key("{ cookie = 'id' }"), [("cookie", "x=1; id=a")], [("cookie", "id=b; x=1")]),
        (
            with_key("{ name_in_header = 'x-account' }"),
            [("x-account", "Dave ")],
            [("x-account", "eve")],
        ),
        (
            with_key("{ all_of = ['peer_ip', { header = 'x-a' }, { constant = 'c' }] }"),
            [("x-a", "a")],
            [("x-a", "b")],
        ),
        (
            with_key("{ first_of = [{ header = 'x-a' }, 'peer_ip'] }"),
            [("x-a", "a")],
            [("x-b", "b")],
        ),
        (behind_proxy, [("x-forwarded-for", "192.0.2.1")], [("x-forwarded-for", "192.0.2.2")]),
    ] {
        for (headers, expected) in [(one, 8), (one, 7), (other, 8)] {
            assert_eq!(app.left("GET /", &headers).await, Some(expected), "{headers:?}");
        }
    }
    let by_name = with_key("{ name_in_header = 'x-account' }");
    assert_eq!(by_name.left("GET /", &[("x-account", "Dave ")]).await, Some(8));
    assert_eq!(by_name.left("GET /", &[("x-account", "dave")]).await, Some(7));
    // Different values are charged to the shared key, as a request without a value is.
    let by_cookie = with_key("{ cookie = 'id' }");
    assert_eq!(by_cookie.left("GET /", &[("cookie", "id=a; id=b")]).await, Some(8));
    assert_eq!(by_cookie.left("GET /", &[("cookie", "id=")]).await, Some(7));
    for (key, same) in
        [("{ path_param = 'id' }", false), ("'matched_route'", true), ("'anonymous'", true)]
    {
        let app = with_key(key);
        assert_eq!(app.left("GET /users/1", &[]).await, Some(8));
        assert_eq!(app.left("GET /users/2", &[]).await, Some(if same { 7 } else { 8 }), "{key}");
    }
}

#[tokio::test]
async fn a_key_of_several_parts_needs_all_of_them() {
    let app = with_key("{ all_of = [{ header = 'x-a' }, { cookie = 'id' }] }");
    for (cookie, expected) in [("id=1", 8), ("id=2", 7)] {
        assert_eq!(app.left("GET /", &[("cookie", cookie)]).await, Some(expected), "shared");
    }
    // Without the address of the peer, all clients would share a key.
    let text = "policies.p = '9/h'\nrules = [{ policy = 'p', key = { all_of = ['peer_ip', { header = 'x-a' }] } }]";
    let layer = Config::from_text(text, Format::Toml).unwrap().layer(&Limiter::in_memory());
    let app = Router::new().route("/", any(|| async {})).layer(layer.unwrap());
    let response = app.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 500);
}

#[tokio::test]
async fn an_operator_writes_the_keys_of_a_rule() {
    let text = "
        policies.p = '9/h'
        rules = [{ policy = 'p', key = { all_of = [{ header = 'x-a' }, 'peer_ip', { cookie = 'id' }] } }]
    ";
    let config = Config::from_text(text, Format::Toml).unwrap();
    let limiter = Limiter::in_memory();
    let app = Router::new()
        .route("/", any(|| async {}))
        .layer(config.layer(&limiter).unwrap())
        .layer(MockConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711))));
    let request = Request::get("/").header("x-a", "alice").header("cookie", "id=7");
    app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let registered = config.registry().get("p").unwrap();
    let key = registered.keys().parse("alice, 10.0.0.1, 7").unwrap();
    let decision = limiter.peek(registered.policy().charge(key, 1)).await.unwrap();
    let left = decision.outcomes().next().unwrap().standing().remaining;
    assert_eq!(left, 8);

    let either = "policies.p = '9/h'\nrules = [{ policy = 'p', key = { first_of = [{ header = 'x-a' }, 'peer_ip'] } }]";
    let config = Config::from_text(either, Format::Toml).unwrap();
    let keys = config.registry().get("p").unwrap().keys();
    assert_eq!(keys.parse("10.0.0.1").unwrap(), std::net::IpAddr::from([10, 0, 0, 1]).into());
    assert_eq!(keys.parse("alice").unwrap(), "alice".into());
}

#[tokio::test]
async fn costs_routes_and_exemptions() {
    let app = App::new(
        "
        policies.p = '20/h'
        exempt = ['/users/{id}']
        exempt_preflights = true
        rules = [{ policy = 'p', key = 'peer_ip', cost = 2, costs = { 'POST /login' = 5, PUT = 3 } }]
        ",
    );
    for (line, expected) in [("GET /", 18), ("POST /login", 13), ("PUT /login", 10), ("GET /", 8)] {
        assert_eq!(app.left(line, &[]).await, Some(expected), "{line}");
    }
    assert_eq!(app.left("GET /users/7", &[]).await, Some(0), "no headers");
    let preflight = [("origin", "https://a"), ("access-control-request-method", "POST")];
    assert_eq!(app.left("OPTIONS /", &preflight).await, Some(0));
    assert_eq!(app.left("GET /", &[]).await, Some(6));

    let only = App::new(
        "policies.p = '2/h'\nrules = [{ policy = 'p', key = 'peer_ip', only = ['POST /login', '/users/{id}'] }]",
    );
    for (line, expected) in
        [("GET /login", 0), ("POST /login", 1), ("DELETE /users/7", 0), ("GET /", 0)]
    {
        assert_eq!(only.left(line, &[]).await, Some(expected), "{line}");
    }
    assert_eq!(only.left("POST /login", &[]).await, None);
}

#[tokio::test]
async fn tiers_come_from_a_header_or_a_claim() {
    let text = "
        policies = { free = '2/h', gold = '8/h' }
        rules = [{ policy = 'free', key = { claim = 'account' }, tier = TIER, tiers = { gold = 'gold' } }]
    ";
    let by_header = App::new(&text.replace("TIER", "{ header = 'x-tier' }"));
    assert_eq!(by_header.left("GET /", &[("x-tier", "gold")]).await, Some(7));
    assert_eq!(by_header.left("GET /", &[("x-tier", "silver")]).await, Some(1));
    let by_claim = App::new(&text.replace("TIER", "{ claim = 'plan' }"));
    for (account, plan, expected) in
        [("1", "gold", 7), ("1", "gold", 6), ("2", "gold", 7), ("1", "none", 1), ("2", "none", 1)]
    {
        let claims = Claims::from_iter([("account", account), ("plan", plan)]);
        let request = Request::get("/").extension(claims).body(Body::empty()).unwrap();
        assert_eq!(left(&by_claim.send(request).await), Some(expected));
    }
}

#[tokio::test]
async fn shadows_trials_and_headers() {
    let text = "
        policies = { p = '1/h', q = '1/h', looser = '3/h' }
        headers = { draft11 = false, x_ratelimit = 'off' }
        plain_text = true
        rules = [
            { policy = 'p', key = 'peer_ip', trials = ['looser'] },
            { policy = 'q', key = 'peer_ip', shadow = true, cost = 2 },
        ]
    ";
    let config = Config::from_text(text, Format::Toml).unwrap();
    let app = Router::new()
        .route("/", any(|| async {}))
        .layer(config.layer(&Limiter::in_memory()).unwrap())
        .layer(MockConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711))));
    let send = || app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap());
    let first = send().await.unwrap();
    assert_eq!((first.status().as_u16(), first.headers().contains_key("ratelimit")), (200, false));
    assert!(!first.headers().contains_key("x-ratelimit-limit"));
    let second = send().await.unwrap();
    assert_eq!(second.status().as_u16(), 429);
    assert_eq!(second.headers()["content-type"], "text/plain; charset=utf-8");
    let counts = config.registry().get("looser").unwrap().policy().trial_counts();
    assert_eq!(format!("{counts:?}").matches('1').count(), 2, "{counts:?}");
}
