//! Shared by the examples: a limiter that the environment configures, its log, and a server.

use std::{env, error::Error, io, net::SocketAddr};

use axum::Router;
use plimsoll::Limiter;
use tokio::net::TcpListener;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    prelude::*,
};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Returns a limiter over Redis if `REDIS_URL` is set, and one in this process otherwise. Its events
/// are written to the standard error.
///
/// The process starts also without Redis. Until there is a connection, it decides by itself, and the
/// log says why.
#[cfg(feature = "redis")]
pub(crate) async fn limiter_from_env() -> Outcome<Limiter> {
    log_events();
    Ok(match env::var("REDIS_URL") {
        Ok(url) => {
            let config = plimsoll::redis::RedisConfig::url(url).lazy(true);
            Limiter::new(plimsoll::RedisStore::connect_with(config).await?)
        }
        Err(_) => Limiter::in_memory(),
    })
}

/// Returns a limiter in this process. Its events are written to the standard error.
#[cfg(not(feature = "redis"))]
#[allow(clippy::unused_async, reason = "it has the signature of the other one")]
pub(crate) async fn limiter_from_env() -> Outcome<Limiter> {
    log_events();
    match env::var_os("REDIS_URL") {
        Some(_) => Err("REDIS_URL is set: run the example with `--features redis`".into()),
        None => Ok(Limiter::in_memory()),
    }
}

/// Writes the events to the standard error. `RUST_LOG` sets the level, as in `RUST_LOG=plimsoll=info`.
/// The default is `warn`, and `info` for this crate, whose first event names the policies.
fn log_events() {
    let default =
        Targets::new().with_default(LevelFilter::WARN).with_target("plimsoll", LevelFilter::INFO);
    let targets = env::var("RUST_LOG").ok().and_then(|it| it.parse().ok()).unwrap_or(default);
    let lines = fmt::layer().with_ansi(false).with_writer(io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(targets)).init();
}

/// Serves `app` on `ADDR` (port 0 takes a free port) and prints the address.
#[allow(dead_code, reason = "the job has no server")]
pub(crate) async fn serve(app: Router) -> Outcome<()> {
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // `by::peer_ip` reads the address of the connection from `ConnectInfo`.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
