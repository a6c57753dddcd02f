//! Random spellings of paths, through a real axum router: the handler that axum chooses, and the
//! parameter that it sees, judge what routes match.
#![cfg(feature = "axum")]

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Path, Request},
    middleware::{Next, from_fn},
    routing::get,
};
use plimsoll::{Limiter, Policy, RateLimitLayer, Rule, by, cost, route};
use plimsoll_testing::seed;
use tower::{Layer, ServiceExt};

const CASES: usize = 2_000;

/// The parts of random paths.
const TOKENS: [&str; 20] = [
    "/", "/", "/", "/", "a", "a", "b", "b", "%61", "%62", "%2F", "%2f", ".", "%2e", "..", "%",
    "%6", "health", "%68ealth", "x",
];

/// The results of the closures for a request.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    /// True if the request is for the route that the case is about.
    is_route: bool,
    cost: u64,
}

/// A router whose handlers answer with the route and the parameter that they see. The paths of the
/// rules begin with `prefix`.
fn routes(prefix: &str, said: &Arc<Mutex<Said>>) -> Router {
    let [file, health] = ["/files/a/b", "/health"].map(|path| format!("{prefix}{path}"));
    let is_file = route::is(&file);
    let costs = cost::by_route([(&*file, 10), (&*health, 0)], |_| 1);
    let said = Arc::clone(said);
    let ask = from_fn(move |request: Request, next: Next| {
        let (parts, body) = request.into_parts();
        *said.lock().unwrap() = Said { is_route: is_file(&parts), cost: costs(&parts) };
        next.run(Request::from_parts(parts, body))
    });
    let policy = Policy::new("all", "1000000/h token-bucket(1000000)").unwrap();
    let layer = RateLimitLayer::new(Limiter::in_memory(), Rule::new(policy, by::constant("all")))
        .exempt(route::is(&format!("GET {health}")));
    Router::new()
        .route("/health", get(|| async { "health" }))
        .route("/{page}", get(|Path(page): Path<String>| async move { format!("page {page}") }))
        .route(
            "/files/{*path}",
            get(|Path(path): Path<String>| async move { format!("file {path}") }),
        )
        .layer(ask)
        .layer(layer)
}

#[tokio::test]
async fn no_spelling_escapes_a_limit_or_obtains_an_exemption() {
    for history in seed::histories("spellings of routes", 1) {
        spellings(&mut seed::Random(history.seed)).await;
    }
}

/// The parts of random paths through nested routers.
const NESTED_TOKENS: [&str; 14] = [
    "/", "/", "/", "/", "/..", "/..", "/%2e.", "/.", "api", "api", "%61pi", "login", "log%69n", "x",
];

/// A service that answers `login` if the path that it receives is another spelling of `/login`.
fn normalizing() -> Router {
    Router::new().fallback(async |request: Request| {
        let path = percent_encoding::percent_decode_str(request.uri().path()).decode_utf8_lossy();
        let mut segments = Vec::new();
        for segment in path.split('/') {
            match segment {
                "" | "." => {}
                ".." => drop(segments.pop()),
                segment => segments.push(segment),
            }
        }
        if segments == ["login"] { "login" } else { "another page" }
    })
}

/// A layer that notes what the closures say of a request for `login`.
macro_rules! asking {
    ($said:expr, $login:expr) => {{
        let (said, is_login) = (Arc::clone($said), route::is($login));
        let costs = cost::by_route([($login, 10)], |_| 1);
        from_fn(move |request: Request, next: Next| {
            let (parts, body) = request.into_parts();
            *said.lock().unwrap() = Said { is_route: is_login(&parts), cost: costs(&parts) };
            next.run(Request::from_parts(parts, body))
        })
    }};
}

#[tokio::test]
async fn no_spelling_escapes_a_limit_of_a_nested_router() {
    for history in seed::histories("spellings in nested routers", 1) {
        nested_spellings(&mut seed::Random(history.seed)).await;
    }
}

async fn nested_spellings(random: &mut seed::Random) {
    let said = Arc::new(Mutex::new(Said::default()));
    let inside = |text| normalizing().layer(asking!(&said, text));
    let nest = |prefix, inner| Router::new().nest(prefix, inner);
    let service = |prefix, inner: Router| Router::new().nest_service(prefix, inner);
    let finished = |text| {
        let service = asking!(&said, text).layer(nest("/api", normalizing()));
        Router::new().fallback_service(service)
    };
    let apps = [
        ("inside", "/api", nest("/api", inside("/login"))),
        ("inside, whole path", "/api", nest("/api", inside("/api/login"))),
        ("outside", "/api", nest("/api", normalizing()).layer(asking!(&said, "/api/login"))),
        ("a finished router", "/api", finished("/api/login")),
        ("a service", "/api", service("/api", inside("/login"))),
        ("in a tenant", "/x", service("/{tenant}", inside("/login"))),
        ("in two", "/api/api", nest("/api", service("/api", inside("/login")))),
        ("in two, whole path", "/api/api", nest("/api", service("/api", inside("/api/api/login")))),
        (
            "between two",
            "/api/v1",
            nest("/api", service("/v1", normalizing()).layer(asking!(&said, "/v1/login"))),
        ),
        (
            "around two",
            "/api/api",
            nest("/api", service("/api", normalizing())).layer(asking!(&said, "/api/api/login")),
        ),
    ];
    let mut reached = [0; 10];
    for _ in 0..CASES {
        let start = random.one(&["/login", "/../login", "/", "/api/../login", "/api/"]);
        let tokens: String = (0..random.below(5)).map(|_| random.one(&NESTED_TOKENS)).collect();
        let path = if random.below(2) == 0 {
            format!("{start}{tokens}")
        } else {
            format!("/{tokens}{start}")
        };
        for (index, (name, prefix, app)) in apps.iter().enumerate() {
            let request = Request::get(format!("{prefix}{path}")).body(Body::empty()).unwrap();
            *said.lock().unwrap() = Said::default();
            let body = app.clone().oneshot(request).await.unwrap().into_body();
            let body = to_bytes(body, 1_000).await.unwrap();
            let Said { is_route: is_login, cost } = *said.lock().unwrap();
            if &*body == b"login" {
                assert!(is_login && cost == 10, "{name}: {prefix}{path} escapes: {cost}");
                reached[index] += usize::from(path != "/login");
            } else if &*body == b"another page" && !path.contains("..") && !path.contains("%2e.") {
                // Without dot segments, another page is not charged either.
                assert!(!is_login && cost == 1, "{name}: {prefix}{path} is charged");
            }
        }
    }
    assert!(reached.iter().all(|cases| *cases > 10), "{reached:?}");
}

async fn spellings(random: &mut seed::Random) {
    let said = Arc::new(Mutex::new(Said::default()));
    let flat = routes("", &said);
    let nested = |prefix| Router::new().nest("/api", routes(prefix, &said));
    let apps = [("", flat), ("/api", nested("")), ("/api", nested("/api"))];
    let (mut files, mut other_files, mut healthy, mut other_healthy) = (0, 0, 0, 0);
    for _ in 0..CASES {
        let path = match random.below(3) {
            0 => {
                let [a, slash, b] = [["a", "%61"], ["/", "%2F"], ["b", "%62"]]
                    .map(|spellings| random.one(&spellings));
                format!("/files/{a}{slash}{b}")
            }
            _ => {
                let start = random.one(&["/", "/files/", "/health", "/%68ealth"]);
                let tokens = (0..random.below(6)).map(|_| random.one(&TOKENS));
                std::iter::once(start).chain(tokens).collect()
            }
        };
        for (prefix, app) in &apps {
            let request = Request::get(format!("{prefix}{path}")).body(Body::empty()).unwrap();
            *said.lock().unwrap() = Said::default();
            let (head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
            let body = to_bytes(body, 1_000).await.unwrap();
            let Said { is_route: is_file, cost } = *said.lock().unwrap();
            let is_exempt = !head.headers.contains_key("ratelimit") && head.status == 200;
            match std::str::from_utf8(&body).unwrap() {
                "file a/b" => {
                    assert!(is_file && cost == 10, "{prefix}{path} escapes: {is_file} {cost}");
                    files += 1;
                    other_files += usize::from(path != "/files/a/b");
                }
                "health" => assert_eq!(cost, 0, "{path}"),
                // A handler may see another spelling of the path, but not a lower cost.
                _ => assert!(head.status != 200 || cost > 0, "{prefix}{path} costs nothing"),
            }
            assert_eq!(is_exempt, path == "/health", "{prefix}{path}");
            healthy += usize::from(is_exempt);
            other_healthy += usize::from(&*body == b"page health");
        }
    }
    let reached = [files, other_files, healthy, other_healthy];
    assert!(reached.iter().all(|cases| *cases > 10), "{reached:?}");
}
