//! Limits each customer as a table in SQLite says:
//! `cargo run -p plimsoll-heavy-examples --example customers`.
//!
//! The header `x-api-key` names the customer: `acme-key` has the 5 requests a minute of the policy,
//! `globex-key` 20 and `initech-key` 100. Unknown keys have 5 a minute for each address.
//!
//! `curl -X PUT -d 50/min http://127.0.0.1:3000/admin/limits/acme` changes a limit. It acts within 2
//! seconds, because rows are cached for that time. The table is in memory; with `DATABASE=path` it is a
//! file, which another program can change as well.

#[path = "../support/mod.rs"]
mod support;

use std::{
    env,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Extension, Path, State},
    http::{StatusCode, request::Parts},
    routing::{get, put},
};
use plimsoll::{
    Policy, Quota, RateLimitLayer, Rule,
    by::{self, Or},
};
use plimsoll_lookup::{LookupLayer, row};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::task;

/// A row of the table.
struct Customer {
    id: i64,
    name: String,
    plan: String,
    limit: Option<Quota>,
}

#[derive(Clone)]
struct Database(Arc<Mutex<Connection>>);

#[tokio::main]
async fn main() -> support::Outcome<()> {
    let limiter = support::limiter_from_env().await?;
    let database = Database::open()?;

    // From a request to the key of a row, and from the key to the row, if there is one.
    let rows = database.clone();
    let customers = LookupLayer::new(api_key, move |api_key| {
        let rows = rows.clone();
        async move { rows.customer(api_key).await }
    })
    .time_to_live(Duration::from_secs(2));

    // The row says who is charged and under which quota. A client without a row is charged by its
    // address, under the quota of the policy.
    let api = Policy::new("api", Quota::per_minute(5))?;
    let rule = Rule::new(api, id.or(by::peer_ip()))
        .quota(|parts: &Parts| row::<Customer>(&parts.extensions)?.limit);

    let app = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(limiter, rule))
        // The outer layer, so the rule finds the row.
        .layer(customers)
        // For administrators: a real service authenticates them.
        .route("/admin/limits/{name}", put(set_limit).with_state(database));
    support::serve(app).await
}

fn id(parts: &Parts) -> Option<i64> {
    Some(row::<Customer>(&parts.extensions)?.id)
}

fn api_key(parts: &Parts) -> Option<String> {
    Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned())
}

/// The layer has looked up the row already.
async fn hello(customer: Option<Extension<Arc<Customer>>>) -> String {
    match customer {
        Some(customer) => format!("hello {}, your plan is {}\n", customer.name, customer.plan),
        None => "hello stranger\n".to_owned(),
    }
}

async fn set_limit(
    State(database): State<Database>,
    Path(name): Path<String>,
    limit: String,
) -> Result<StatusCode, (StatusCode, String)> {
    let limit: Quota =
        limit.parse().map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}\n")))?;
    match database.set_limit(name, limit).await {
        Ok(true) => Ok(StatusCode::NO_CONTENT),
        Ok(false) => Err((StatusCode::NOT_FOUND, "no such customer\n".to_owned())),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))),
    }
}

impl Database {
    fn open() -> rusqlite::Result<Self> {
        let connection = match env::var("DATABASE") {
            Ok(path) => Connection::open(path)?,
            Err(_) => Connection::open_in_memory()?,
        };
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS customers (
                id INTEGER PRIMARY KEY, api_key TEXT UNIQUE, name TEXT UNIQUE, plan TEXT, quota TEXT
            );
            INSERT OR IGNORE INTO customers VALUES
                (1, 'acme-key', 'acme', 'free', NULL),
                (2, 'globex-key', 'globex', 'pro', '20/min'),
                (3, 'initech-key', 'initech', 'enterprise', '100/min');",
        )?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    async fn customer(&self, api_key: String) -> support::Outcome<Option<Customer>> {
        self.run(move |connection| {
            let query = "SELECT id, name, plan, quota FROM customers WHERE api_key = ?1";
            let row = connection.query_row(query, [api_key], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, Option<String>>(3)?))
            });
            let Some((id, name, plan, quota)) = row.optional()? else { return Ok(None) };
            let limit = quota.map(|quota| quota.parse()).transpose()?;
            Ok(Some(Customer { id, name, plan, limit }))
        })
        .await
    }

    /// Returns false if there is no such customer.
    async fn set_limit(&self, name: String, limit: Quota) -> support::Outcome<bool> {
        self.run(move |connection| {
            let update = "UPDATE customers SET quota = ?1 WHERE name = ?2";
            Ok(connection.execute(update, params![limit.to_string(), name])? > 0)
        })
        .await
    }

    /// Runs a query on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> support::Outcome<T> + Send + 'static,
    ) -> support::Outcome<T> {
        let connection = Arc::clone(&self.0);
        let queried = task::spawn_blocking(move || {
            query(&connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        queried.await?
    }
}
