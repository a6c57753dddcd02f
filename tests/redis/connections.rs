//! The ways to connect: URLs, sockets, TLS, users, the application's pool.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bb8_redis::RedisConnectionManager;
use plimsoll::{Limiter, RedisStore, redis::RedisConfig};
use plimsoll_testing::{
    algorithms::each_quota,
    proxy::Proxy,
    servers::{Certificates, Server, directory, free_port},
};

use crate::{admits, assert_works, patient, policy};

const RIGHTS: &str =
    "+evalsha +eval +time +get +set +getrange +setrange +pexpire +pexpireat +pttl +del";

#[tokio::test]
async fn a_unix_socket() {
    let path = directory().join("redis.sock");
    let path = path.to_str().expect("utf-8");
    let _server = Server::start_with(&["--unixsocket", path]);
    assert_works(RedisStore::connect(&format!("unix://{path}")).await.expect("a store")).await;
}

#[tokio::test]
async fn a_database_number_and_a_prefix() {
    let server = Server::start();
    let config = RedisConfig::default().prefix("shop.limits").plain_keys(true);
    let url = format!("{}5", server.url());
    assert_works(
        RedisStore::connect_with(RedisConfig::url(&url).with_settings(config))
            .await
            .expect("a store"),
    )
    .await;
    assert!(server.keys().is_empty());
    let keyspace: String = server.ask("INFO keyspace");
    assert!(keyspace.contains("db5:keys=1,expires=1"), "{keyspace}");
}

/// A user that may do what the documentation says, and nothing else, over TLS.
#[tokio::test]
async fn tls_and_a_user_with_the_fewest_rights() {
    let (certificates, tls) = (Certificates::make(), free_port());
    let arguments = certificates.arguments(tls);
    let server = Server::start_with(&arguments.each_ref().map(String::as_str));
    server.ask::<()>(&format!("ACL SETUSER limiter on >s3cret/% ~plim:* -@all {RIGHTS}"));
    let ca = fs::read(certificates.authority()).expect("made");
    let config = RedisConfig::default().root_certificates(ca);
    let url = |password: &str| format!("rediss://limiter:{password}@localhost:{tls}/");
    let store = RedisStore::connect_with(
        RedisConfig::url(url("s3cret%2F%25")).with_settings(config.clone()),
    )
    .await;
    let store = store.expect("a store");
    assert_works(store.clone()).await;

    let error = RedisStore::connect_with(RedisConfig::url(url("wrong")).with_settings(config))
        .await
        .expect_err("refused");
    assert_eq!(error.kind(), plimsoll::error::ErrorKind::Unauthorized, "{error:?}");
    // Without the certificate of the authority, the server is not trusted.
    let error = RedisStore::connect(&url("s3cret%2F%25")).await.expect_err("not trusted");
    assert!(error.is_unavailable(), "{error:?}");
    // Everything that the store does is within those rights.
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    for (quota, _) in each_quota("9/s", 3, 9) {
        let policy = policy("all", &quota);
        let plimsoll::limiter::Reserved::Held(held) =
            limiter.reserve(policy.charge("bob", 2)).await.expect("an answer")
        else {
            panic!("denied")
        };
        held.settle(5).await.expect("settled");
        assert!(limiter.peek(policy.charge("bob", 1)).await.expect("an answer").is_allowed());
        limiter.reset(policy.charge("bob", 1)).await.expect("reset");
    }
}

#[tokio::test]
async fn the_applications_pool() {
    let mut server = Server::start();
    let manager = RedisConnectionManager::new(server.url()).expect("a valid address");
    let pool = bb8::Pool::builder().max_size(1).build(manager).await.expect("a pool");
    let config = RedisConfig::pool(pool.clone()).with_settings(patient());
    let store = RedisStore::connect_with(config).await.expect("a store");
    assert_works(store.clone()).await;
    // The only connection is the application's, and checks do not wait for it.
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let held = pool.get().await.expect("the connection is free");
    assert!(admits(&limiter, &policy("more", "3/h"), "alice").await);
    drop(held);

    // A check is one command: no PING goes with it.
    server.ask::<()>("CONFIG RESETSTAT");
    let busy = policy("busy", "10000/h");
    for _ in 0..500 {
        assert!(admits(&limiter, &busy, "alice").await);
    }
    let stats: String = server.ask("INFO commandstats");
    assert!(!stats.contains("cmdstat_ping"), "{stats}");
    assert!(stats.contains("cmdstat_evalsha:calls=500,"), "{stats}");

    // 200 tasks over a pool of one connection get about the same number of decisions, of 20,000 in all.
    let sum = Arc::<AtomicU64>::default();
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let (limiter, busy, sum) = (limiter.clone(), busy.clone(), Arc::clone(&sum));
            tokio::spawn(async move {
                let mut done = 0;
                while sum.fetch_add(1, SeqCst) < 20_000 {
                    let _ = limiter.check(busy.charge("all", 1)).await.expect("an answer");
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut counts = Vec::new();
    for task in tasks {
        counts.push(task.await.expect("a count"));
    }
    let (least, mean) = (*counts.iter().min().expect("some"), counts.iter().sum::<u64>() / 200);
    eprintln!("bb8 path, 200 tasks on a pool of 1: {least} checks at least, {mean} in the mean");
    assert!(2 * least >= mean, "{counts:?}");

    // A connection that ended while idle is noticed before a check is sent into it.
    server.kill();
    server.run();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(admits(&limiter, &policy("again", "3/h"), "alice").await);
}

/// An idle connection like the pool's is tested once before the next checks are sent over it, so
/// that none of them is lost.
#[tokio::test]
async fn idle_connections_like_the_pools_are_tested() {
    let server = Server::start();
    let (proxy, url) = Proxy::start(server.port).await;
    let manager = RedisConnectionManager::new(url).expect("a valid address");
    let pool = bb8::Pool::builder().max_size(1).build(manager).await.expect("a pool");
    let config = patient().batching(false);
    let store = RedisStore::connect_with(RedisConfig::pool(pool).with_settings(config))
        .await
        .expect("a store");
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let policy = policy("p", "100/h");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    proxy.silent.store(proxy.opened.load(SeqCst), SeqCst);
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            tokio::spawn(async move { admits(&limiter, &policy, "alice").await })
        })
        .collect();
    for task in tasks {
        assert!(task.await.expect("no error"));
    }
}

/// A transaction or `SELECT` on a connection that the application has checked out does not reach
/// the store.
#[tokio::test]
async fn the_store_uses_no_connection_of_the_application() {
    let server = Server::start();
    let manager = RedisConnectionManager::new(server.url()).expect("a valid address");
    let pool = bb8::Pool::builder().max_size(1).build(manager).await.expect("a pool");
    let store = RedisStore::connect_with(RedisConfig::pool(pool.clone())).await.expect("a store");
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let policy = policy("p", "100/h");
    let mut mine = pool.get().await.expect("a connection");
    let mut ask = async |command: &str| -> redis::Value {
        let mut words = redis::Cmd::new();
        for word in command.split(' ') {
            words.arg(word);
        }
        words.query_async(&mut *mine).await.expect("an answer")
    };
    ask("MULTI").await;
    ask("SET a 1").await;
    assert!(admits(&limiter, &policy, "alice").await);
    let done = ask("EXEC").await;
    assert_eq!(done, redis::Value::Array(vec![redis::Value::Okay]), "its own transaction");
    ask("SELECT 3").await;
    assert!(admits(&limiter, &policy, "alice").await);
    let keyspace: String = server.ask("INFO keyspace");
    assert!(!keyspace.contains("db3"), "{keyspace}");
    drop(limiter);
    assert_eq!(pool.state().connections, 1);
}
