//! Stores that are created while Redis is unreachable, refuses, or is well.

use std::{future::Future, sync::atomic::Ordering::SeqCst, time::Duration};

use bb8_redis::RedisConnectionManager;
use futures_util::FutureExt;
use plimsoll::{
    Limiter, RedisStore, Resilience,
    error::ErrorKind,
    redis::RedisConfig,
    store::{Source, Store},
};
use plimsoll_testing::{
    calm::eventually,
    proxy::Proxy,
    servers::{Server, directory, free_port, until},
};
use tokio::{
    net::TcpListener,
    time::{Instant, sleep, timeout},
};

use crate::policy;

fn lazy() -> RedisConfig {
    RedisConfig::default().lazy(true)
}

async fn source(limiter: &Limiter) -> Source {
    let policy = policy("p", "100000/h token-bucket(100000)");
    limiter.check(policy.charge("alice", 1)).await.expect("a decision").source()
}

/// A process starts without Redis: it decides by itself, at once, and through Redis within 2 s of
/// its start.
async fn starts_without_redis<F>(create: F, begin: impl FnOnce() -> Vec<Server>)
where
    F: Future<Output = Result<RedisStore, plimsoll::Error>>,
{
    let store = timeout(Duration::from_millis(500), create).await.expect("at once");
    let limiter = Limiter::new(store.expect("a store"));
    for _ in 0..50 {
        assert_eq!(source(&limiter).await, Source::Fallback);
        sleep(Duration::from_millis(10)).await;
    }
    let reason = limiter.status().not_ready.expect("a reason");
    assert!(reason.contains("check that it runs") && reason.contains("refused"), "{reason}");
    let _servers = begin();
    let start = Instant::now();
    while source(&limiter).await != Source::Shared {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", limiter.status());
        sleep(Duration::from_millis(5)).await;
    }
    eprintln!("measured: shared {:?} after Redis", start.elapsed());
    assert_eq!(limiter.status().not_ready, None);
}

fn server_at(port: u16) -> Server {
    let arguments = ["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"];
    Server::start_bare(port, &arguments.map(str::to_owned))
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_later() {
    let port = free_port();
    let create = RedisStore::connect_with(RedisConfig::url(url(port)).lazy(true));
    starts_without_redis(create, || vec![server_at(port)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_server_comes_later() {
    let port = free_port();
    let manager = RedisConnectionManager::new(url(port)).expect("a manager");
    let pool = bb8::Pool::builder().max_size(2).build(manager).await.expect("a pool");
    let create = RedisStore::connect_with(RedisConfig::pool(pool).with_settings(lazy()));
    starts_without_redis(create, || vec![server_at(port)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_comes_later() {
    let (port, primary) = (free_port(), Server::start());
    let create =
        RedisStore::connect_with(RedisConfig::sentinel([url(port)], "mine").with_settings(lazy()));
    starts_without_redis(create, || {
        let path = directory().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor mine 127.0.0.1 {} 1\n",
            primary.port
        );
        std::fs::write(&path, text).expect("written");
        let path = path.to_str().expect("UTF-8").to_owned();
        vec![Server::start_bare(port, &[path, "--sentinel".into()])]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_comes_later() {
    let port = free_port();
    let create = RedisStore::connect_with(RedisConfig::cluster([url(port)]).with_settings(lazy()));
    starts_without_redis(create, || {
        let mut server = Server::start_bare(port, &[]);
        server.kill();
        let arguments = ["--cluster-enabled", "yes", "--port", &port.to_string(), "--save", ""];
        let dir = server.dir.to_str().expect("UTF-8").to_owned();
        let arguments: Vec<_> =
            arguments.map(str::to_owned).into_iter().chain(["--dir".into(), dir]).collect();
        let node = Server::start_bare(port, &arguments);
        until("it runs", || node.try_ask::<()>("CLUSTER ADDSLOTSRANGE 0 16383").is_ok());
        let is_up = || node.ask::<String>("CLUSTER INFO").contains("cluster_state:ok");
        until("the cluster is up", is_up);
        vec![server, node]
    })
    .await;
}

/// While nothing answers, the first checks wait 50 ms in all, and each later one not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_costs_50_ms_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    // The breaker would hide what the store does.
    let limiter = Limiter::with_resilience(
        RedisStore::connect_with(RedisConfig::url(url(port)).lazy(true)).await.expect("a store"),
        Resilience::default().without_breaker(),
    );
    let mut waits = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        assert_eq!(source(&limiter).await, Source::Fallback);
        waits.push(start.elapsed());
        sleep(Duration::from_millis(2)).await;
    }
    let rest: Duration = waits[1..].iter().sum();
    eprintln!("measured: the first check {:?}, 199 others {rest:?} in all", waits[0]);
    waits[1..].sort();
    assert!(waits[0] >= Duration::from_millis(30), "{:?}", waits[0]);
    assert!(waits[100] < Duration::from_millis(5), "{:?}", waits[100]);
    let reason = limiter.status().not_ready.expect("a reason");
    let reasons = ["no connection to Redis yet", "connecting took too long"];
    assert!(reasons.iter().any(|it| reason.contains(it)), "{reason}");
}

/// A healthy server decides from the first check on.
#[tokio::test]
async fn the_first_check_waits_for_the_connection() {
    let server = Server::start();
    for _ in 0..50 {
        let limiter = Limiter::with_resilience(
            RedisStore::connect_with(RedisConfig::url(server.url()).lazy(true))
                .await
                .expect("a store"),
            Resilience::default().deadline(Duration::from_secs(20)),
        );
        let decided_by = source(&limiter).await;
        // On a busy machine connecting takes longer than the 50 ms.
        if decided_by == Source::Shared {
            assert_eq!(limiter.status().not_ready, None);
            return;
        }
    }
    panic!("the first check never waits");
}

/// An error of the check at the start is kept in the status, and ends without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn rights_that_are_granted_later() {
    let server = Server::start();
    server.ask::<()>("ACL SETUSER limiter on >pw ~* +@all -del");
    let address = format!("redis://limiter:pw@127.0.0.1:{}/", server.port);
    let limiter = Limiter::new(
        RedisStore::connect_with(RedisConfig::url(&address).lazy(true)).await.expect("a store"),
    );
    let named = async || limiter.status().not_ready.is_some_and(|reason| reason.contains("DEL"));
    eventually("the reason is kept", named).await;
    assert_eq!(source(&limiter).await, Source::Fallback);
    let none = Limiter::with_resilience(
        RedisStore::connect_with(RedisConfig::url(&address).lazy(true)).await.expect("a store"),
        Resilience::none(),
    );
    // Until then, checks fail because there is no connection.
    let named = async || none.status().not_ready.is_some_and(|reason| reason.contains("DEL"));
    eventually("the reason is kept", named).await;
    let policy = policy("p", "5/h");
    let error = none.check(policy.charge("alice", 1)).await.map(drop).expect_err("not ready");
    assert_eq!((error.kind(), error.place()), (ErrorKind::Unauthorized, "server"), "{error}");
    assert_eq!(error.effect(), plimsoll::error::Effect::None, "the check was not sent");
    server.ask::<()>("ACL SETUSER limiter +del");
    eventually("it decides", async || source(&limiter).await == Source::Shared).await;
}

#[tokio::test]
async fn addresses_are_read_at_once() {
    let error = RedisStore::connect_with(RedisConfig::url("http://localhost/").lazy(true))
        .await
        .expect_err("not an address");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = RedisStore::connect_with(
        RedisConfig::url("redis://127.0.0.1/").with_settings(lazy().prefix("a b")),
    );
    assert_eq!(error.await.expect_err("a space").kind(), ErrorKind::Invalid);
    let error =
        RedisStore::connect_with(RedisConfig::cluster(Vec::<String>::new()).with_settings(lazy()));
    assert_eq!(error.await.expect_err("no node").kind(), ErrorKind::Invalid);
}

/// The task that connects ends with the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_store_stops_connecting() {
    let server = Server::start();
    let (proxy, url) = Proxy::start(server.port).await;
    proxy.mute.store(true, SeqCst);
    let config = lazy().connect_timeout(Duration::from_millis(20));
    let store = RedisStore::connect_with(RedisConfig::url(&url).with_settings(config))
        .await
        .expect("a store");
    let attempts = async || store.status().not_ready.is_some() && proxy.opened.load(SeqCst) > 5;
    eventually("it connects again and again", attempts).await;
    drop(store);
    eventually("its connections end", async || proxy.open.load(SeqCst) == 0).await;
    let opened = proxy.opened.load(SeqCst);
    sleep(Duration::from_millis(600)).await;
    assert_eq!(proxy.opened.load(SeqCst), opened);
}

/// A store that is created outside of a runtime starts at its first check, and starts again if the
/// runtime ends.
#[test]
fn a_store_outlives_its_runtime() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).lazy(true))
        .now_or_never()
        .expect("it does not wait")
        .expect("a store");
    for _ in 0..2 {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let limiter = Limiter::new(store.clone());
        runtime
            .block_on(eventually("it decides", async || source(&limiter).await == Source::Shared));
    }
}
