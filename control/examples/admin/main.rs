//! A shop whose limits operators see and change:
//! `cargo run -p plimsoll-control --example admin --all-features`.
//!
//! It prints the address of the admin page and a token. With `REDIS_URL`, several of these processes share the
//! limits and what operators change.
//!
//! | variable | is |
//! |---|---|
//! | `ADDR` | the address to listen on; else `127.0.0.1:3000` |
//! | `REDIS_URL` | the Redis that counts, and keeps what operators change, unless `CONFIG` names one; else this process |
//! | `CONFIG` | a file with the limits, which is read again when it changes; else `limits.toml` beside this program |
//! | `ADMIN_TOKEN` | the token of the operator; else a random one |
//!
//! `/metrics` is for Prometheus. A service on the Internet serves it and the page on another port.

mod clients;

use std::{
    env,
    error::Error,
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    time::Duration,
};

use axum::{Router, response::Redirect, routing::get};
use metrics_exporter_prometheus::PrometheusBuilder;
use plimsoll_control::{
    Config, Format, Offenders, Overrides, OverridesConfig,
    admin::{self, Access, AdminConfig},
};
use tokio::{net::TcpListener, time::sleep};

/// Upper bounds of the buckets of histograms, in seconds. The deadline of a check is 0.05 s.
const BUCKETS: [f64; 8] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];

/// The keys of each policy that are counted by themselves.
const OFFENDERS: usize = 1_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The recorder comes first, so that it receives all metrics.
    let prometheus = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;

    let config = match env::var("CONFIG") {
        Ok(path) => Config::from_path(path)?,
        Err(_) => Config::from_text(include_str!("limits.toml"), Format::Toml)?,
    };
    config.watch();
    let registry = config.registry().clone();

    // Units and overrides are in the same store, so that all instances and tools find both.
    let (mut store, variable) = (config.store().clone(), env::var("REDIS_URL").ok());
    if let (None, Some(url)) = (store.url(), &variable) {
        store = store.with_url(url);
    }
    let limiter = store.connect().await?;
    // A cluster, sentinels and regions stay. Then the variable names the server of the overrides.
    let shared = match store.url().or(variable.as_deref()) {
        Some(url) => OverridesConfig::of(&store).server(url),
        None => OverridesConfig::of(&store),
    };
    let overrides = Overrides::connect(shared, registry.clone(), limiter.clone()).await?;
    // The keys of the shop are names of customers, which operators may see.
    let overrides = overrides.show_keys();
    let offenders = Offenders::new(OFFENDERS).show_keys();
    let decisions = offenders.clone();
    let limit = config.layer_with(&limiter, move |layer| {
        let decisions = decisions.clone();
        layer.on_decision(move |decision, _| decisions.record(decision))
    })?;

    let shop = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/search", get(|| async { "found\n" }))
        .route("/orders", get(|| async { "ordered\n" }))
        .route("/slow", get(slow))
        .layer(limit);

    let token = env::var("ADMIN_TOKEN").unwrap_or_else(|_| random_token());
    let access = Access::tokens().write("operator", &token);
    let admin = AdminConfig::new(overrides, offenders, access).config(&config);
    let app = shop
        .clone()
        .nest("/admin/", admin::router(admin))
        .route("/admin", get(|| async { Redirect::permanent("/admin/") }))
        .route("/metrics", get(move || async move { prometheus.render() }));

    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("admin on http://{address}/admin/ with token {token}");
    let clients = tokio::spawn(clients::run(shop));
    // Rules with the key `client_ip` need the address of the connection.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let served = axum::serve(listener, app).await;
    clients.abort();
    Ok(served?)
}

async fn slow() -> &'static str {
    sleep(Duration::from_secs(1)).await;
    "done\n"
}

/// Returns 128 random bits. The keys of a `RandomState` are random, and its hashes do not show them.
fn random_token() -> String {
    let bits = || RandomState::new().hash_one(());
    format!("{:016x}{:016x}", bits(), bits())
}
