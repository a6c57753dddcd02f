//! What the examples share: the store that the environment names, and a server.

use std::{env, error::Error, net::SocketAddr};

use axum::Router;
use tokio::net::TcpListener;
use tollgate::Limiter;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// In this process; on Redis when `REDIS_URL` is set.
pub(crate) fn limiter_from_env() -> Outcome<Limiter> {
    match env::var("REDIS_URL") {
        Err(_) => Ok(Limiter::in_memory()),
        Ok(_) => Err("REDIS_URL is set, but this version has no Redis store yet".into()),
    }
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
