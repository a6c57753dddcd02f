//! An axum service of nested routers whose tenants and plans are in a database.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, request::Parts},
    routing::get,
};
use plimsoll::{
    Key, Limiter, Policy, Quota, RateLimitLayer, Rule,
    by::{self, Or},
    route,
    rule::Tiers,
};
use plimsoll_lookup::{LookupFailed, LookupLayer, row};
use plimsoll_testing::web::{Client, http1, serve};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Plan {
    Free,
    Pro,
}

#[derive(Debug, Clone)]
struct Tenant {
    name: String,
    plan: Plan,
    exports: Option<Quota>,
}

/// A database as the service uses it: an asynchronous query that can fail.
#[derive(Clone, Default)]
struct Database {
    tenants: Arc<Mutex<HashMap<String, Tenant>>>,
    queries: Arc<Mutex<Vec<String>>>,
    is_down: Arc<Mutex<bool>>,
}

impl Database {
    async fn tenant(&self, token: &str) -> Result<Option<Tenant>, String> {
        tokio::task::yield_now().await;
        self.queries.lock().unwrap().push(token.to_owned());
        if *self.is_down.lock().unwrap() {
            return Err("connection refused".to_owned());
        }
        Ok(self.tenants.lock().unwrap().get(token).cloned())
    }

    fn insert(&self, token: &str, name: &str, plan: Plan, exports: Option<Quota>) {
        let tenant = Tenant { name: name.to_owned(), plan, exports };
        self.tenants.lock().unwrap().insert(token.to_owned(), tenant);
    }
}

fn token(parts: &Parts) -> Option<String> {
    let value = parts.headers.get("authorization")?.to_str().ok()?;
    Some(value.strip_prefix("Bearer ")?.to_owned())
}

fn name(parts: &Parts) -> Option<Key> {
    Some(Key::from(&row::<Tenant>(&parts.extensions)?.name))
}

/// `/api/v1/items` and `/api/v1/exports` behind one layer, and a status page beside them.
fn app(database: Database) -> Router {
    let tenants = LookupLayer::new(token, move |token| {
        let database = database.clone();
        async move { database.tenant(&token).await }
    })
    .time_to_live(Duration::from_secs(3_600));

    let tiers = Tiers::new(policy("anonymous", "1/h"))
        .tier(Plan::Free, policy("free", "2/h"))
        .tier(Plan::Pro, policy("pro", "50/h"));
    let requests = tiers
        .rule(|parts: &Parts| Some(row::<Tenant>(&parts.extensions)?.plan), name.or(by::peer_ip()));
    let exports = Rule::new(policy("exports", "1/h"), name)
        .quota(|parts: &Parts| row::<Tenant>(&parts.extensions)?.exports)
        .only(route::is("GET /exports"));

    let v1 = Router::new()
        .route("/items", get(items))
        .route("/exports", get(export))
        .layer(RateLimitLayer::new(Limiter::in_memory(), requests).and(exports))
        .layer(tenants);
    let api = Router::new().nest("/v1", v1);
    Router::new().nest("/api", api).route("/status", get(|| async { "fine" }))
}

/// The handler reads the row that the layer has looked up.
async fn items(request: Request) -> String {
    let tenant = row::<Tenant>(request.extensions());
    tenant.map_or("items".to_owned(), |tenant| format!("items of {}", tenant.name))
}

/// Exports need a row.
async fn export(request: Request) -> Result<&'static str, StatusCode> {
    match request.extensions().get::<LookupFailed>() {
        Some(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
        None => Ok("exported"),
    }
}

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).unwrap()
}

/// Returns the status of each of `count` requests.
async fn ask(client: &mut Client, path: &str, token: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        let authorization = format!("Bearer {token}");
        let reply = client.get_with(path, &[("authorization", &authorization)]).await;
        statuses.push(reply.status);
    }
    statuses
}

#[tokio::test]
async fn plans_and_quotas_come_from_rows() {
    let database = Database::default();
    database.insert("token-1", "small", Plan::Free, None);
    database.insert("token-2", "large", Plan::Pro, Some(Quota::per_hour(3)));
    database.insert("token-3", "large", Plan::Pro, Some(Quota::per_hour(3)));
    let mut client = http1(serve(app(database.clone())).await).await;

    assert_eq!(ask(&mut client, "/api/v1/items", "token-1", 3).await, [200, 200, 429]);
    let reply = client.get_with("/api/v1/items", &[("authorization", "Bearer token-2")]).await;
    assert_eq!(reply.body, "items of large");
    assert_eq!(reply.headers["ratelimit-policy"], r#""pro";q=50;w=3600"#);
    assert_eq!(reply.headers["x-ratelimit-remaining"], "49");
    // Both tokens are of one tenant, which has 3 exports.
    assert_eq!(ask(&mut client, "/api/v1/exports", "token-3", 2).await, [200, 200]);
    assert_eq!(ask(&mut client, "/api/v1/exports", "token-2", 2).await, [200, 429]);
    // Clients with invented tokens share the limit of their address.
    assert_eq!(ask(&mut client, "/api/v1/items", "invented-1", 1).await, [200]);
    assert_eq!(ask(&mut client, "/api/v1/items", "invented-2", 1).await, [429]);
    assert_eq!(ask(&mut client, "/status", "invented-3", 1).await, [200]);
    let mut queries = database.queries.lock().unwrap().clone();
    queries.sort();
    assert_eq!(queries, ["invented-1", "invented-2", "token-1", "token-2", "token-3"]);
}

#[tokio::test]
async fn without_the_database_known_tenants_go_on() {
    let database = Database::default();
    database.insert("token-2", "large", Plan::Pro, Some(Quota::per_hour(3)));
    database.insert("token-4", "late", Plan::Pro, None);
    let mut client = http1(serve(app(database.clone())).await).await;
    assert_eq!(ask(&mut client, "/api/v1/exports", "token-2", 1).await, [200]);
    *database.is_down.lock().unwrap() = true;
    assert_eq!(ask(&mut client, "/api/v1/exports", "token-2", 3).await, [200, 200, 429]);
    // Exports need a row. Without one, requests are limited by the address, also those that the handler refuses.
    assert_eq!(ask(&mut client, "/api/v1/exports", "token-4", 1).await, [503]);
    assert_eq!(ask(&mut client, "/api/v1/items", "token-4", 1).await, [429]);
    let mut other = http1(serve(app(database)).await).await;
    assert_eq!(ask(&mut other, "/api/v1/items", "token-4", 2).await, [200, 429]);
}
