//! The self-test of the script when a store connects: each thing that would fail later fails there, and
//! the error says what to do.

use std::{fs, time::Duration};

use plimsoll::{
    Error, Limiter, RedisStore, Resilience, error::ErrorKind, limiter::Reserved,
    redis::RedisConfig, store::BreakerStatus,
};
use plimsoll_testing::{
    algorithms::each_quota,
    calm::eventually,
    servers::{Cluster, Guarded, Server, until},
};

use crate::{admits, errors::answering, patient, policy};

#[track_caller]
fn assert_says(result: Result<RedisStore, Error>, kind: ErrorKind, place: &str, parts: &[&str]) {
    let error = result.expect_err("the self-test fails");
    assert_eq!((error.kind(), error.place()), (kind, place), "{error:?}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    // The address of the server, without the user and the password.
    let (_, address) = text.rsplit_once("; the server is ").expect("an address");
    assert!(address.contains("127.0.0.1:") && !text.contains("limiter:"), "{text}");
    assert!(!text.contains("password@"), "{text}");
}

/// Returns the rights in the example of the documentation, as commands.
fn documented_rights() -> Vec<String> {
    let text = fs::read_to_string("docs/redis.md").expect("the page");
    let lines = text.lines().filter(|line| line.starts_with("ACL SETUSER"));
    let lines: Vec<_> = lines.map(str::to_owned).collect();
    assert!(!lines.is_empty());
    lines
}

#[tokio::test]
async fn the_documented_rights_suffice() {
    let server = Server::start();
    for line in documented_rights() {
        server.ask::<()>(&line);
    }
    let url = format!("redis://limiter:password@127.0.0.1:{}/", server.port);
    let store = RedisStore::connect_with(RedisConfig::url(&url).with_settings(patient()))
        .await
        .expect("enough rights");
    assert!(server.keys().is_empty(), "the self-test leaves nothing");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let each = each_quota("5/400d", 4, 5).map(|(quota, _)| quota);
    for quota in each.iter().map(String::as_str).chain(["5 concurrent"]) {
        let policy = policy("p", quota);
        let spent = limiter.reserve(policy.charge("alice", 2)).await.expect("an answer");
        let Reserved::Held(reservation) = spent else { panic!("two of five") };
        assert!(reservation.refund().await.expect("an answer") > 0, "{quota}");
        limiter.penalize(policy.charge("bob", 9)).await.expect("an answer");
        limiter.block(policy.charge("bob", 1), Duration::from_secs(60)).await.expect("an answer");
        limiter.unblock(policy.charge("bob", 1)).await.expect("an answer");
        limiter.reset(policy.charge("alice", 1)).await.expect("an answer");
        for expected in [true, true, true, true, true, false] {
            assert_eq!(admits(&limiter, &policy, "alice").await, expected, "{quota}");
        }
        limiter.reset(policy.charge("alice", 1)).await.expect("an answer");
    }
    // A log whose key has to live longer, which is what PEXPIREAT is for.
    let before = server.info("commandstats", "cmdstat_pexpireat");
    let log = policy("log", "1000000/300ms");
    let is_extended = async || {
        for _ in 0..100 {
            assert!(admits(&limiter, &log, "alice").await);
        }
        server.info("commandstats", "cmdstat_pexpireat") != before
    };
    eventually("the expiry of a long log is renewed", is_extended).await;
    assert!(server.ask::<Vec<redis::Value>>("ACL LOG").is_empty(), "nothing was refused");
}

#[tokio::test]
async fn each_right_is_tried() {
    let server = Server::start();
    let url = format!("redis://limiter:password@127.0.0.1:{}/", server.port);
    let rights = documented_rights().join(" ");
    let commands: Vec<_> = rights.split(' ').filter_map(|word| word.strip_prefix('+')).collect();
    assert_eq!(commands.len(), 10, "{commands:?}");
    for missing in commands {
        for line in documented_rights() {
            server.ask::<()>(&line);
        }
        server.ask::<()>(&format!("ACL SETUSER limiter -{missing}"));
        let result =
            RedisStore::connect_with(RedisConfig::url(&url).with_settings(patient())).await;
        // The time is read before the self-test: Redis 7 does not name that command, Redis 8 does.
        let named = if missing == "time" { ["can't run", "'time'"] } else { [missing; 2] };
        let error = result.as_ref().expect_err("a right is missing").to_string().to_lowercase();
        assert!(named.iter().any(|named| error.contains(named)), "{missing}: {error}");
        assert_says(result, ErrorKind::Unauthorized, "server", &["grant the user ~<prefix>:*"]);
    }
    server.ask::<()>("ACL SETUSER limiter reset on >password ~shop:* +@all");
    let result = RedisStore::connect_with(RedisConfig::url(&url).with_settings(patient())).await;
    assert_says(result, ErrorKind::Unauthorized, "server", &["~<prefix>:*", "access", "key"]);
    let config = patient().prefix("shop");
    RedisStore::connect_with(RedisConfig::url(&url).with_settings(config))
        .await
        .expect("the right prefix");
}

/// A self-test whose key cannot be deleted leaves it to its time to live.
#[tokio::test]
async fn scratch_keys_expire() {
    for missing in ["del", "pexpireat"] {
        let server = Server::start();
        server.ask::<()>(&format!("ACL SETUSER limiter on >password ~* +@all -{missing}"));
        let url = format!("redis://limiter:password@127.0.0.1:{}/", server.port);
        RedisStore::connect_with(RedisConfig::url(&url).with_settings(patient()))
            .await
            .expect_err("a right is missing");
        assert_eq!(server.keys().len(), 1);
        server.assert_all_keys_expire();
    }
}

#[tokio::test]
async fn a_replica_is_refused() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    until("the replica follows", || replica.info("replication", "master_link_status") == "up");
    let result =
        RedisStore::connect_with(RedisConfig::url(replica.url()).with_settings(patient())).await;
    assert_says(result, ErrorKind::ReadOnly, "server", &["connect to the primary", "READONLY"]);
}

#[tokio::test]
async fn a_server_that_cannot_write_is_refused() {
    let server = Server::start_with(&["--appendonly", "yes"]);
    server.ask::<()>("CONFIG SET maxmemory 1");
    let result =
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient())).await;
    assert_says(result, ErrorKind::OutOfMemory, "server", &["raise maxmemory", "SET OOM"]);
    server.ask::<()>("CONFIG SET maxmemory 0");
    server.limit_files("1");
    server.ask::<()>("SET other 1");
    server.until_wrote("err");
    let result =
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient())).await;
    assert_says(result, ErrorKind::CannotPersist, "server", &["make room", "MISCONF"]);
}

#[tokio::test]
async fn a_node_of_a_cluster_is_not_a_single_server() {
    let cluster = Cluster::start();
    // However often: no scratch key happens to be in the right slot.
    for node in cluster.nodes.iter().cycle().take(9) {
        let result =
            RedisStore::connect_with(RedisConfig::url(node.url()).with_settings(patient())).await;
        assert_says(result, ErrorKind::Unsupported, "server", &["RedisConfig::cluster"]);
    }
    // A node with all slots takes each check of one key, but not the checks of two.
    let alone = Server::start_with(&["--cluster-enabled", "yes"]);
    alone.ask::<()>("CLUSTER ADDSLOTSRANGE 0 16383");
    until("the cluster is up", || alone.ask::<String>("CLUSTER INFO").contains("cluster_state:ok"));
    let result =
        RedisStore::connect_with(RedisConfig::url(alone.url()).with_settings(patient())).await;
    assert_says(result, ErrorKind::Unsupported, "server", &["RedisConfig::cluster", "CROSSSLOT"]);
    RedisStore::connect_with(RedisConfig::cluster([alone.url()]).with_settings(patient()))
        .await
        .expect("a cluster of one");
}

#[tokio::test]
async fn each_node_of_a_cluster_is_tried() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        node.ask::<()>("ACL SETUSER limiter on >password ~* +@all");
    }
    let url = |node: &Server| format!("redis://limiter:password@127.0.0.1:{}/", node.port);
    let urls: Vec<_> = cluster.nodes.iter().map(url).collect();
    RedisStore::connect_with(RedisConfig::cluster(urls.clone()).with_settings(patient()))
        .await
        .expect("enough rights");
    for node in &cluster.nodes {
        assert!(node.keys().is_empty());
    }
    cluster.nodes[1].ask::<()>("ACL SETUSER limiter -del");
    let error = RedisStore::connect_with(RedisConfig::cluster(urls).with_settings(patient()))
        .await
        .expect_err("a right is missing");
    assert!(error.place().ends_with("(slots from 5461)"), "{error:?}");
    let place = error.place().to_owned();
    assert_says(Err(error), ErrorKind::Unauthorized, &place, &["grant", "DEL"]);
}

/// The other nodes decide their keys, so a process can start while one node is full.
#[tokio::test]
async fn a_cluster_starts_while_one_node_is_full() {
    let cluster = Cluster::start();
    cluster.nodes[1].ask::<()>("CONFIG SET maxmemory 1");
    RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(patient()))
        .await
        .expect("two nodes are well");
    for node in &cluster.nodes {
        node.ask::<()>("CONFIG SET maxmemory 1");
    }
    let error =
        RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(patient()))
            .await
            .expect_err("all full");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error:?}");
    assert!(error.place().starts_with("node "), "{error:?}");
}

#[tokio::test]
async fn a_primary_behind_sentinel_is_tried() {
    let guarded = Guarded::steady();
    guarded.primary.ask::<()>("ACL SETUSER limiter on >password ~* +@all -setrange");
    let primary = format!("redis://limiter:password@{}/", Guarded::NAME);
    let result = RedisStore::connect_with(
        RedisConfig::sentinel(guarded.urls(), &primary).with_settings(patient()),
    )
    .await;
    assert_says(result, ErrorKind::Unauthorized, "primary", &["grant", "SETRANGE"]);
}

#[tokio::test]
async fn an_old_server_is_refused() {
    // Redis 6.0 answers so to SET .. PXAT, and Redis 5 to HELLO.
    for (answer, said) in [
        (&b"-SELFTEST SET ERR syntax error\r\n"[..], "syntax error"),
        (b"-SELFTEST SET @user_script: 96: ERR syntax error\r\n", "syntax error"),
    ] {
        let result =
            RedisStore::connect_with(RedisConfig::url(answering(answer)).with_settings(patient()))
                .await;
        assert_says(result, ErrorKind::Unsupported, "server", &["Redis 6.2 or newer", said]);
    }
}

/// The probe of the breaker runs the self-test, so the breaker stays open while Redis cannot write.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_keeps_the_breaker_open() {
    let server = Server::start();
    let config = RedisConfig::default();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(config))
        .await
        .expect("a store");
    let limiter = Limiter::new(store);
    let policy = policy("p", "1000/h");
    let is_open = || matches!(limiter.status().breaker, Some(BreakerStatus::Open { .. }));
    server.ask::<()>("CONFIG SET maxmemory 1");
    let opens = async || {
        assert!(admits(&limiter, &policy, "alice").await);
        is_open()
    };
    eventually("the breaker opens", opens).await;
    for _ in 0..150 {
        assert!(
            matches!(limiter.status().breaker, Some(BreakerStatus::Open { .. })),
            "{:?}",
            limiter.status()
        );
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    server.ask::<()>("CONFIG SET maxmemory 0");
    let closes = async || limiter.status().breaker == Some(BreakerStatus::Closed);
    eventually("the breaker closes", closes).await;
}
