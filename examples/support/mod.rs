//! Shared by the examples: a limiter that the environment configures, and a server.

use std::{env, error::Error, net::SocketAddr};

use axum::Router;
use tokio::net::TcpListener;
use tollgate::Limiter;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Returns a limiter over Redis if `REDIS_URL` is set, and one in this process otherwise.
#[cfg(feature = "redis")]
pub(crate) async fn limiter_from_env() -> Outcome<Limiter> {
    Ok(match env::var("REDIS_URL") {
        Ok(url) => Limiter::new(tollgate::store::RedisStore::connect(&url).await?),
        Err(_) => Limiter::in_memory(),
    })
}

/// Returns a limiter in this process.
#[cfg(not(feature = "redis"))]
pub(crate) async fn limiter_from_env() -> Outcome<Limiter> {
    match env::var_os("REDIS_URL") {
        Some(_) => Err("REDIS_URL is set: run the example with `--features redis`".into()),
        None => Ok(Limiter::in_memory()),
    }
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
