//! Shared by the examples: a limiter that the environment configures, and a server.

use std::{env, error::Error, net::SocketAddr};

use axum::Router;
use tokio::net::TcpListener;
use tollgate::{Limiter, store::RedisStore};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Returns a limiter over Redis if `REDIS_URL` is set, and one in this process otherwise.
pub(crate) async fn limiter_from_env() -> Outcome<Limiter> {
    Ok(match env::var("REDIS_URL") {
        Ok(url) => Limiter::new(RedisStore::connect(&url).await?),
        Err(_) => Limiter::in_memory(),
    })
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
