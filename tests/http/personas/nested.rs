//! An axum service of nested routers, with limits inside and outside of the nests.

use axum::{
    Router,
    extract::Path,
    routing::{get, post},
};
use plimsoll::{Limiter, Policy, RateLimitLayer, Rule, by, cost, route};
use plimsoll_testing::web::{Client, http1, serve};

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).unwrap()
}

/// A limit of 1 request a day to one route.
fn once(route: &str) -> Rule {
    Rule::new(policy("once", "1/d"), by::peer_ip()).only(route::is(route))
}

fn layer(rule: Rule) -> RateLimitLayer {
    RateLimitLayer::new(Limiter::in_memory(), rule)
}

async fn page(Path(page): Path<String>) -> String {
    format!("page {page}")
}

/// The routes under `/api/v1`.
fn routes() -> Router {
    Router::new()
        .route("/", get(|| async { "index" }))
        .route("/search", get(|| async { "found" }))
        .route("/users/{id}", get(page).delete(page))
        .route("/files/{*path}", get(page))
        .route("/health", get(|| async { "healthy" }))
}

/// The service, with a layer inside of the inner nest, one between the nests, and one outside.
fn app(inner: Option<Rule>, between: Option<Rule>, outer: Option<Rule>) -> Router {
    let add = |router: Router, rule: Option<Rule>| match rule {
        Some(rule) => router.layer(layer(rule)),
        None => router,
    };
    let v1 = add(routes(), inner);
    let api = add(Router::new().nest("/v1", v1), between);
    add(Router::new().nest("/api", api).route("/{page}", get(page)), outer)
}

async fn statuses(client: &mut Client, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(client.get(path).await.status);
    }
    statuses
}

#[tokio::test]
async fn a_rule_inside_of_a_nest_matches_the_inner_and_the_whole_route() {
    for (route, first, second) in [
        ("/search", "/api/v1/search", "/api/v1/search?q=2"),
        ("GET /api/v1/search", "/api/v1/search", "/api/v1/search"),
        ("/users/{id}", "/api/v1/users/7", "/api/v1/users/8"),
        ("/api/v1/users/{id}", "/api/v1/users/7", "/api/v1/users/8"),
        ("/users/me", "/api/v1/users/me", "/api/v1/users/me"),
        ("/api/v1/users/me", "/api/v1/users/me", "/api/v1/users/%6De"),
        ("/", "/api/v1", "/api/v1"),
        ("/api/v1", "/api/v1", "/api/v1"),
    ] {
        let mut client = http1(serve(app(Some(once(route)), None, None)).await).await;
        let paths = [first, second, "/api/v1/health", "/other"];
        assert_eq!(statuses(&mut client, &paths).await, [200, 429, 200, 200], "{route}");
    }
}

#[tokio::test]
async fn a_rule_between_and_outside_of_nests_matches_what_it_sees() {
    for (route, layers) in [
        ("/v1/search", [false, true, false]),
        ("/api/v1/search", [true, true, true]),
        ("/search", [true, false, false]),
    ] {
        for (place, expected) in layers.into_iter().enumerate() {
            let rule = |at: usize| (at == place).then(|| once(route));
            let app = app(rule(0), rule(1), rule(2));
            let mut client = http1(serve(app).await).await;
            let statuses = statuses(&mut client, &["/api/v1/search", "/api/v1/search"]).await;
            assert_eq!(statuses[1] == 429, expected, "{route} at place {place}");
        }
    }
}

/// A router as a service is not seen by the outer one; layers around it know the path alone.
#[tokio::test]
async fn a_nested_service_is_matched_by_its_path() {
    for route in ["/search", "/api/search"] {
        let service = tower::ServiceBuilder::new().layer(layer(once(route))).service(routes());
        let app = Router::new().nest_service("/api", service);
        let mut client = http1(serve(app).await).await;
        let paths = ["/api/search", "/api/search", "/api/health"];
        assert_eq!(statuses(&mut client, &paths).await, [200, 429, 200], "{route}");
    }
}

/// The health check of a nested router is exempt, by a route or by a closure.
#[tokio::test]
async fn health_inside_of_a_nest_is_exempt() {
    let all = || Rule::new(policy("all", "1/d"), by::peer_ip());
    for layer in [
        layer(all()).exempt(route::is("/health")),
        layer(all()).exempt(route::is("GET /api/health")),
        layer(all()).exempt(|parts| route::path(parts) == "/api/health"),
    ] {
        let app = Router::new().nest("/api", routes().layer(layer));
        let mut client = http1(serve(app).await).await;
        let paths = ["/api/search", "/api/search", "/api/health", "/api/health"];
        assert_eq!(statuses(&mut client, &paths).await, [200, 429, 200, 200]);
    }
}

#[tokio::test]
async fn costs_by_route_inside_and_outside_of_a_nest() {
    let costs = || {
        let table = [
            ("/search", 10),
            ("DELETE /api/users/{id}", 20),
            ("/users/{id}", 5),
            ("/api/users/me", 3),
        ];
        Rule::new(policy("units", "1000/d"), by::peer_ip()).cost(cost::by_route(table, |_| 1))
    };
    for (app, expected) in [
        (Router::new().nest("/api", routes().layer(layer(costs()))), [10, 5, 3, 1]),
        (Router::new().nest("/api", routes()).layer(layer(costs())), [1, 1, 3, 1]),
    ] {
        let mut client = http1(serve(app).await).await;
        let (mut before, mut spent) = (1_000, Vec::new());
        for path in ["/api/search", "/api/users/7", "/api/users/me", "/api/health"] {
            let reply = client.get(path).await;
            let remaining = reply.headers["x-ratelimit-remaining"].to_str().unwrap();
            let remaining: u64 = remaining.parse().unwrap();
            spent.push(before - remaining);
            before = remaining;
        }
        assert_eq!(spent, expected);
    }
}

/// A client that spells a path in another way stays limited, where a handler may see the same path.
#[tokio::test]
async fn other_spellings_do_not_escape_a_limit() {
    let spellings = [
        "/api/v1/files/%73ecret",
        "/api/v1/files/secret/",
        "/api/v1/files//secret",
        "/api/v1/files/./secret",
        "/api/v1/files/x/../secret",
        "/api/v1/files/x%2f..%2Fsecret",
    ];
    for spelling in spellings {
        let rules = [Some(once("/files/secret")), None];
        let [inner, none] = rules;
        let mut client = http1(serve(app(inner, none.clone(), none)).await).await;
        let paths = ["/api/v1/files/secret", spelling, "/api/v1/files/public"];
        assert_eq!(statuses(&mut client, &paths).await, [200, 429, 200], "{spelling}");
        let mut client =
            http1(serve(app(None, None, Some(once("/api/v1/files/secret")))).await).await;
        assert_eq!(statuses(&mut client, &paths).await, [200, 429, 200], "{spelling}");
    }
    // For a route without parameters, another spelling is another route, here one that does not
    // exist. It spends nothing of the route's budget.
    let app = Router::new()
        .route("/docs", get(|| async { "docs" }))
        .route("/docs/", get(|| async { "all docs" }))
        .layer(layer(once("/docs")));
    let mut client = http1(serve(app).await).await;
    let paths = ["/docs/", "/docs/", "/docs", "/docs"];
    assert_eq!(statuses(&mut client, &paths).await, [200, 200, 200, 429]);
}

/// axum sends another spelling of `/health` to the handler of `/{page}`, which is limited.
#[tokio::test]
async fn other_spellings_are_not_exempt() {
    for around_the_router in [false, true] {
        let rule = Rule::new(policy("pages", "1/d"), by::peer_ip());
        let layer = layer(rule).exempt(route::is("/health"));
        let app =
            Router::new().route("/health", get(|| async { "healthy" })).route("/{page}", get(page));
        let app = match around_the_router {
            false => app.layer(layer),
            true => Router::new()
                .fallback_service(tower::ServiceBuilder::new().layer(layer).service(app)),
        };
        let mut client = http1(serve(app).await).await;
        assert_eq!(client.get("/%68ealth").await.body, "page health");
        let paths = ["/%68ealth", "/health", "//health", "/health/", "/health"];
        assert_eq!(statuses(&mut client, &paths).await, [429, 200, 429, 429, 200]);
    }
}

/// The tenant `a` requests the inner route `/b` as `/a/b`, which is an inner route of its own.
#[tokio::test]
async fn the_name_of_a_tenant_obtains_no_exemption_and_no_lower_cost() {
    let rule = || {
        let costs = cost::by_route([("/cheap/b", 1)], |_| 2);
        Rule::new(policy("units", "2/d"), by::path_param("tenant")).cost(costs)
    };
    let inner = || Router::new().route("/b", get(|| async {})).route("/{a}/b", get(|| async {}));
    let layer = layer(rule()).exempt(route::is("/a/b")).exempt(route::grpc("shop.Health"));
    let app = Router::new().nest("/{tenant}", inner().layer(layer));
    let mut client = http1(serve(app).await).await;
    for tenant in ["a", "cheap", "shop.Health"] {
        let paths = ["b", "b", "a/b"].map(|path| format!("/{tenant}/{path}"));
        let paths = [&*paths[0], &*paths[1], &*paths[2]];
        assert_eq!(statuses(&mut client, &paths).await, [200, 429, 200], "{tenant}");
    }
}

/// Inside of `nest("/api", ..)`, `/api/health` is a whole path, also if a parameter of an inner route
/// makes an inner path of the same text.
#[tokio::test]
async fn an_inner_path_is_not_taken_for_a_whole_path() {
    let rule = Rule::new(policy("pages", "1/d"), by::peer_ip());
    let layer = layer(rule).exempt(route::is("/api/health")).exempt(route::is("/live"));
    let inner = Router::new().route("/{page}", get(page)).route("/{a}/{b}", get(|| async {}));
    let app = Router::new().nest("/api", inner.layer(layer));
    let mut client = http1(serve(app).await).await;
    let paths = ["/api/x", "/api/api/health", "/api/health", "/api/live", "/api/api/live"];
    assert_eq!(statuses(&mut client, &paths).await, [200, 429, 200, 200, 429]);
}

/// A text with a parameter is no path: a client that requests `/users/{id}` chooses nothing by it.
#[tokio::test]
async fn a_path_with_braces_is_not_the_route() {
    let rule = Rule::new(policy("pages", "1/d"), by::peer_ip())
        .cost(cost::by_route([("/users/{id}", 0), ("/free", 0)], |_| 1));
    let app = Router::new()
        .route("/{*path}", get(page))
        .layer(layer(rule).exempt(route::is("/exempt/{id}")));
    let mut client = http1(serve(app).await).await;
    let paths = ["/free", "/free", "/x", "/users/{id}", "/exempt/{id}", "/%66ree", "/free/"];
    assert_eq!(
        statuses(&mut client, &paths).await,
        [200, 200, 200, 429, 429, 429, 429],
        "a spelling never lowers the cost"
    );
}

/// A client cannot lower a cost by writing the pattern of the route as its path.
#[tokio::test]
async fn a_path_that_is_written_like_its_route_costs_as_much() {
    let rule = Rule::new(policy("searches", "20/d"), by::peer_ip())
        .cost(cost::by_route([("/search/{text}", 10)], |_| 1));
    let app = Router::new().route("/search/{text}", get(page)).layer(layer(rule));
    let mut client = http1(serve(app).await).await;
    let paths = ["/search/a", "/search/{text}", "/search/{text}"];
    assert_eq!(statuses(&mut client, &paths).await, [200, 200, 429]);
}

/// The methods of an exempt service begin with its name, and are written in one way.
#[tokio::test]
async fn a_path_that_leaves_an_exempt_service_is_limited() {
    let rule = Rule::new(policy("all", "1/d"), by::peer_ip());
    let layer = layer(rule).exempt(route::grpc("shop.Health"));
    let service = tower::ServiceBuilder::new().layer(layer).service(app(None, None, None));
    let mut client = http1(serve(Router::new().fallback_service(service)).await).await;
    let paths = [
        "/api/v1/search",
        "/shop.Health/../api/v1/search",
        "/shop.Health/%2e%2e/api/v1/search",
        "/shop.Health/..%2fapi/v1/search",
    ];
    assert_eq!(statuses(&mut client, &paths).await, [200, 429, 429, 429]);
    assert_ne!(statuses(&mut client, &["/shop.Health/Check"]).await, [429]);
}

/// In a layer around the whole service, nothing is matched yet: paths are known, patterns are not.
#[tokio::test]
async fn a_layer_around_the_whole_service_knows_paths() {
    let rule = Rule::new(policy("logins", "1/d"), by::peer_ip()).only(route::is("/api/v1/search"));
    let service = tower::ServiceBuilder::new().layer(layer(rule)).service(app(None, None, None));
    let app = Router::new().fallback_service(service).route("/x", post(|| async {}));
    let mut client = http1(serve(app).await).await;
    let paths = ["/api/v1/search", "/api/v1/search", "/api/v1/health"];
    assert_eq!(statuses(&mut client, &paths).await, [200, 429, 200]);
}
