//! What the examples share: the store that the environment names, and a server.

use std::{env, error::Error, net::SocketAddr};

use axum::Router;
use tokio::net::TcpListener;
use tollgate::{Limiter, store::RedisStore};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// In this process; on Redis when `REDIS_URL` is set.
pub(crate) async fn limiter_from_env() -> Outcome<Limiter> {
    Ok(match env::var("REDIS_URL") {
        Ok(url) => Limiter::new(RedisStore::connect(&url).await?),
        Err(_) => Limiter::in_memory(),
    })
}

/// Serves on `ADDR` (port 0 takes a free one), and says where.
#[allow(dead_code, reason = "the job has no server")]
pub(crate) async fn serve(app: Router) -> Outcome<()> {
    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // The limiter learns the peer's address from `ConnectInfo`.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
