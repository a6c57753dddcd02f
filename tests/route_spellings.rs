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
use tollgate::{Limiter, Policy, RateLimitLayer, Rule, by, cost, route};
use tower::ServiceExt;

#[path = "support/seed.rs"]
mod seed;

const CASES: usize = 2_000;

/// The parts of random paths.
const TOKENS: [&str; 20] = [
    "/", "/", "/", "/", "a", "a", "b", "b", "%61", "%62", "%2F", "%2f", ".", "%2e", "..", "%",
    "%6", "health", "%68ealth", "x",
];

/// The results of the closures for a request.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    is_file: bool,
    cost: u64,
}

/// A router whose handlers answer with the route and the parameter that they see. The paths of the
/// rules begin with `prefix`.
fn routes(prefix: &str, said: &Arc<Mutex<Said>>) -> Router {
    let [file, health] = ["/files/a/b", "/health"].map(|path| format!("{prefix}{path}"));
    let is_file = route::is(&file);
    let costs = cost::by_route([(&*file, 10), (&*health, 0)], 1);
    let said = Arc::clone(said);
    let ask = from_fn(move |request: Request, next: Next| {
        let (parts, body) = request.into_parts();
        *said.lock().unwrap() = Said { is_file: is_file(&parts), cost: costs(&parts) };
        next.run(Request::from_parts(parts, body))
    });
    let policy = Policy::new("all", "1000000/h token-bucket(1000000)".parse().unwrap()).unwrap();
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
            let Said { is_file, cost } = *said.lock().unwrap();
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
