//! One region of a service in several: `cargo run -p plimsoll-examples --features redis --example regions`.
//!
//! Each region has a Redis of its own with its guaranteed share of the quota. The rest is a pool in the
//! Redis of the home, which may be far away: this example delays all replies from there. Start it once
//! for each region, with three servers for two regions:
//!
//! ```console
//! $ export HOME_REDIS_URL=redis://127.0.0.1:6381/
//! $ ADDR=127.0.0.1:3001 REGION_REDIS_URL=redis://127.0.0.1:6379/ cargo run -p plimsoll-examples --features redis --example regions
//! $ ADDR=127.0.0.1:3002 REGION_REDIS_URL=redis://127.0.0.1:6380/ cargo run -p plimsoll-examples --features redis --example regions
//! ```
//!
//! - `REGION_REDIS_URL=redis://127.0.0.1/` is the server of this region.
//! - `HOME_REDIS_URL` is the server of the home, by default the server of this region. It may be down.
//! - `HOME_DELAY=100ms` is the delay of each reply from the home; `0ms` for none.
//! - `QUOTA="60000/min leased(500ms)"` sets the quota of all regions together.
//! - `REGIONS=2` is the number of regions.
//! - `SHARE_PERCENT=70` is guaranteed to all regions together.
//! - `ADDR=127.0.0.1:8080` sets the address to listen on; port 0 takes a free port.
//!
//! SIGTERM ends the server, and refunds the units that it has leased.

use std::{env, error::Error, net::SocketAddr, str::FromStr, time::Duration};

use axum::{Router, routing::get};
use plimsoll::{
    Limiter, Policy, Quota, RateLimitLayer, RedisStore, Rule,
    by::{self, Or},
    redis::RedisConfig,
};
use plimsoll_regions::{Regions, RegionsConfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    signal::unix,
    sync::mpsc,
    time::{Instant, sleep_until},
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let region_url = var("REGION_REDIS_URL", "redis://127.0.0.1/".to_owned())?;
    let home_url = var("HOME_REDIS_URL", region_url.clone())?;
    let delay: u64 = var("HOME_DELAY", "100ms".to_owned())?.trim_end_matches("ms").parse()?;
    let home_url = match delay {
        0 => home_url,
        delay => delayed(&home_url, Duration::from_millis(delay)).await?,
    };

    // The pool has keys of its own, also in the server of a region. Without it, the region still starts.
    let pool = RedisConfig::url(&home_url).prefix("pool").lazy(true);
    let local = RedisStore::connect(&region_url).await?;
    let home = RedisStore::connect_with(pool).await?;
    let config = RegionsConfig::new(var("REGIONS", 2)?).share_percent(var("SHARE_PERCENT", 70)?);
    let limiter = Limiter::new(Regions::new(local, home, config)?);

    let quota = var("QUOTA", "60000/min leased(500ms)".to_owned())?;
    let policy = Policy::new("everywhere", quota.parse::<Quota>()?)?;
    let rule = Rule::new(policy, by::header("x-api-key").or(|_| "everybody"));
    let app = Router::new()
        .route("/", get(|| async { "ok\n" }))
        .layer(RateLimitLayer::new(limiter.clone(), rule));

    // The handler of SIGTERM is installed before the first line is printed.
    let mut terminated = unix::signal(unix::SignalKind::terminate())?;
    let listener = TcpListener::bind(var("ADDR", "127.0.0.1:3000".to_owned())?).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let stop = async move {
        terminated.recv().await;
    };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    // If a store is unreachable, its units come back when they leave the window.
    if let Err(error) = limiter.close().await {
        eprintln!("some units are not returned: {error}");
    }
    Ok(())
}

/// Returns a variable of the environment, or `default` if it is not set.
fn var<T: FromStr<Err: Error + Send + Sync + 'static>>(name: &str, default: T) -> Outcome<T> {
    match env::var(name) {
        Ok(value) => value.parse().map_err(|error| format!("{name}={value}: {error}").into()),
        Err(_) => Ok(default),
    }
}

/// Starts a proxy to the server of a URL that delays each reply, and returns the URL of the proxy.
async fn delayed(url: &str, delay: Duration) -> Outcome<String> {
    let rest = url.strip_prefix("redis://").ok_or("HOME_DELAY needs a redis:// URL, or 0ms")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let server = if host.contains(':') { host.to_owned() } else { format!("{host}:6379") };
    let at = if user.is_empty() { "" } else { "@" };

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = format!("redis://{user}{at}{}/{path}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                // If the server cannot be reached, the connection ends.
                if let Ok(server) = TcpStream::connect(server).await {
                    carry(client, server, delay).await;
                }
            });
        }
    });
    Ok(proxy)
}

/// Forwards the bytes of one connection. Bytes from the server arrive after `delay`.
async fn carry(client: TcpStream, server: TcpStream, delay: Duration) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (sender, receiver) = mpsc::channel(1024);
    let replies = async move {
        let mut bytes = vec![0; 65_536];
        while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
            if sender.send((Instant::now() + delay, bytes[..length].to_vec())).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        () = replies => {}
        () = write_late(receiver, to_client) => {}
    }
}

/// Writes each piece of a reply at its time.
async fn write_late(mut pieces: mpsc::Receiver<(Instant, Vec<u8>)>, mut to_client: OwnedWriteHalf) {
    while let Some((at, bytes)) = pieces.recv().await {
        sleep_until(at).await;
        if to_client.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
