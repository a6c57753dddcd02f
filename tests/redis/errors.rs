//! Errors of Redis: each is reported, nothing is charged, and nothing is overwritten.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
    time::Duration,
};

use plimsoll::{
    Error, Limiter, RedisStore,
    error::{Effect, ErrorKind},
    redis::RedisConfig,
};
use plimsoll_testing::{
    algorithms::each_quota,
    calm::eventually,
    servers::{PATIENCE, Server, free_port, until},
};

use crate::{patient, policy};

async fn fails(limiter: &Limiter, quota: &str) -> Error {
    let policy = policy("p", quota);
    limiter.check(policy.charge("alice", 1)).await.map(|_| ()).expect_err("an error")
}

async fn limiter(server: &Server) -> Limiter {
    let config = patient().plain_keys(true);
    Limiter::with_resilience(
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(config))
            .await
            .expect("a store"),
        plimsoll::Resilience::none(),
    )
}

#[track_caller]
fn assert_says(error: &Error, kind: ErrorKind, advice: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(advice), "{error}");
}

#[tokio::test]
async fn addresses_that_are_not() {
    for url in ["http://localhost/", "redis", "redis://localhost/x", ""] {
        let error = RedisStore::connect(url).await.expect_err("not an address");
        assert_says(&error, ErrorKind::Invalid, "redis://");
    }
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("redis://hidden-user:hidden-password@{address}/");
    let error = RedisStore::connect(&url).await.expect_err("no server there");
    assert_says(&error, ErrorKind::Unavailable, "check that it runs");
    assert_says(&error, ErrorKind::Unavailable, &address);
    assert!(!error.to_string().contains("hidden"), "{error}");
    let config = RedisConfig::default().prefix("a{b");
    let error = RedisStore::connect_with(RedisConfig::url(&url).with_settings(config))
        .await
        .expect_err("braces");
    assert_says(&error, ErrorKind::Invalid, "without braces");
}

#[tokio::test]
async fn passwords_and_rights() {
    let server = Server::start();
    server.ask::<()>("ACL SETUSER limiter on >pw ~* +@all");
    let url = |user: &str| format!("redis://{user}@127.0.0.1:{}/", server.port);
    let error = RedisStore::connect(&url("limiter:no")).await.expect_err("a wrong password");
    assert_says(&error, ErrorKind::Unauthorized, "check them in the URL");
    // Rights that are taken away later. The script needs one of them after it has written.
    let config = RedisConfig::url(url("limiter:pw")).with_settings(patient());
    let store = RedisStore::connect_with(config).await.expect("a store");
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    server.ask::<()>("ACL SETUSER limiter -pexpireat");
    let policy = crate::policy("p", "200/4s");
    let check = || limiter.check(policy.charge("alice", 1));
    // A short log is written as a whole. This one gets long, and has to live longer after half a second.
    let start = tokio::time::Instant::now();
    let error = loop {
        match check().await {
            Err(error) => break error,
            Ok(_) => assert!(start.elapsed() < PATIENCE, "the key has to live longer"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_says(&error, ErrorKind::Unauthorized, "grant the user");
    assert_eq!(error.effect(), Effect::Unknown);
    server.ask::<()>("ACL SETUSER limiter resetkeys ~other:*");
    let error = check().await.map(drop).expect_err("no right to the key");
    assert_says(&error, ErrorKind::Unauthorized, "grant the user");
    assert_eq!(error.effect(), Effect::None);
    server.ask::<()>("CONFIG SET requirepass pw");
    let error = RedisStore::connect(&server.url()).await;
    let error = match error {
        Ok(store) => {
            fails(&Limiter::with_resilience(store, plimsoll::Resilience::none()), "5/h").await
        }
        Err(error) => error,
    };
    assert_says(&error, ErrorKind::Unauthorized, "check them in the URL");
}

#[tokio::test]
async fn a_replica_and_a_full_server() {
    let (primary, replica) = (Server::start(), Server::start());
    let on_replica = limiter(&replica).await;
    replica.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    until("the replica follows", || replica.info("replication", "master_link_status") == "up");
    for (quota, _) in &each_quota("5/h", 4, 5) {
        assert_says(
            &fails(&on_replica, quota).await,
            ErrorKind::ReadOnly,
            "connect to the primary",
        );
    }

    let on_primary = limiter(&primary).await;
    primary.ask::<()>("CONFIG SET maxmemory 1");
    for (quota, _) in &each_quota("5/h", 4, 5) {
        assert_says(&fails(&on_primary, quota).await, ErrorKind::OutOfMemory, "raise maxmemory");
    }
    assert!(primary.keys().is_empty(), "nothing was written");
    primary.ask::<()>("CONFIG SET maxmemory 0");
    let policy = policy("p", "5/h");
    let allowed = on_primary.check(policy.charge("alice", 5)).await;
    assert!(allowed.expect("an answer").is_allowed(), "nothing was charged");
}

/// However often a server refuses, connecting again is tried now and then.
#[tokio::test]
async fn a_replica_is_not_connected_to_for_each_check() {
    let (primary, replica) = (Server::start(), Server::start());
    let limiter = limiter(&replica).await;
    replica.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    until("the replica follows", || replica.info("replication", "master_link_status") == "up");
    let connected = || -> u32 {
        replica.info("stats", "total_connections_received").parse().expect("a number")
    };
    let before = connected();
    let start = tokio::time::Instant::now();
    for _ in 0..500 {
        assert_eq!(fails(&limiter, "5/h").await.kind(), ErrorKind::ReadOnly);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let (connected, took) = (connected() - before, start.elapsed());
    eprintln!("500 checks of a replica in {took:.1?}: {connected} connections");
    // The pause between two attempts grows to 250 ms, less a random part.
    assert!(connected <= 32 + took.as_millis() as u32 / 125, "{connected}");
    // But it is tried.
    replica.ask::<()>("REPLICAOF NO ONE");
    let policy = policy("p", "5/h");
    let decided = async || limiter.check(policy.charge("alice", 1)).await.is_ok();
    eventually("the new primary decides", decided).await;
}

#[tokio::test]
async fn a_full_disk() {
    let server = Server::start_with(&["--appendonly", "yes"]);
    let limiter = limiter(&server).await;
    let spent = policy("spent", "5/h");
    assert!(limiter.check(spent.charge("alice", 2)).await.expect("an answer").is_allowed());
    server.limit_files("1");
    // Redis finds out with a write that it still acknowledges, or while it writes the charge down.
    let _ = server.try_ask::<()>("SET other 1");
    server.until_wrote("err");
    for (quota, _) in &each_quota("5/h", 4, 5) {
        assert_says(&fails(&limiter, quota).await, ErrorKind::CannotPersist, "make room");
    }
    server.limit_files("unlimited");
    server.until_wrote("ok");
    for (units, allowed) in [(3, true), (1, false)] {
        let decision = limiter.check(spent.charge("alice", units)).await.expect("an answer");
        assert_eq!(decision.is_allowed(), allowed, "nothing was charged");
    }
    let charged = server.keys().into_iter().filter(|key| key.starts_with(b"plim:"));
    assert_eq!(charged.count(), 1, "the checks that failed have left no key");
}

/// A URL that ends in `/99`, and the number of a database in a cluster.
#[tokio::test]
async fn databases_that_do_not_exist() {
    let server = Server::start();
    let url = format!("{}/99", server.url().trim_end_matches('/'));
    let error = RedisStore::connect(&url).await.expect_err("no such database");
    assert_says(
        &error,
        ErrorKind::Unsupported,
        "no database with the number at the end of the URL",
    );
    assert_says(
        &error,
        ErrorKind::Unsupported,
        url.trim_start_matches("redis://").split('/').next().expect("an address"),
    );
    let url = format!("{}/3", server.url().trim_end_matches('/'));
    RedisStore::connect(&url).await.expect("it has 16");
}

/// A server of another protocol, which answers the first bytes with an error of its own and closes the
/// connection.
#[tokio::test]
async fn an_http_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, axum::Router::new()).await });
    let error = RedisStore::connect(&format!("redis://{address}/")).await.expect_err("HTTP");
    assert_says(&error, ErrorKind::Protocol, "does not speak the Redis protocol");
    assert_says(&error, ErrorKind::Protocol, &address.to_string());
}

/// The error names the policy of the key, so that the key can be found. If the server does not say which key
/// it is, the error names all policies of the check.
#[tokio::test]
async fn a_foreign_key_has_a_policy() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let (mine, free) = (policy("mine", "5/h"), policy("free", "5/h"));
    for (command, both) in
        [("SET {} xxxxx", "the policy of the key is mine;"), ("RPUSH {} x", "is free or mine;")]
    {
        server.ask::<()>("FLUSHALL");
        server.ask::<()>(&command.replace("{}", "plim:{=alice}:mine:l4"));
        let error = limiter.check(mine.charge("alice", 1)).await.map(|_| ()).expect_err("refused");
        assert_says(&error, ErrorKind::WrongType, "the policy of the key is mine");
        let error = limiter.check([free.charge("alice", 1), mine.charge("alice", 1)]).await;
        let error = format!("{};", error.map(|_| ()).expect_err("refused"));
        assert!(error.contains(both), "{error}");
    }
}

#[tokio::test]
async fn what_belongs_to_others_is_left_alone() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    for (quota, layout) in &each_quota("5/h", 4, 5) {
        let key = format!("plim:{{=alice}}:p:{layout}");
        let texts = [21, 38, 41, 83, 5, 300].map(|length| "x".repeat(length));
        let commands = texts.iter().map(|text| format!("SET {key} {text}"));
        for command in commands.chain([format!("RPUSH {key} x"), format!("HSET {key} a b")]) {
            server.ask::<()>(&format!("DEL {key}"));
            server.ask::<()>(&command);
            let before: Vec<u8> = server.ask(&format!("DUMP {key}"));
            assert_says(&fails(&limiter, quota).await, ErrorKind::WrongType, "another prefix");
            // Beside others, too: none of them is charged.
            let (mine, free) = (policy("p", quota), policy("free", quota));
            let both = limiter.check([free.charge("alice", 1), mine.charge("alice", 1)]).await;
            assert_says(&both.map(|_| ()).expect_err("refused"), ErrorKind::WrongType, "it is");
            assert_eq!(server.keys().len(), 1);
            let after: Vec<u8> = server.ask(&format!("DUMP {key}"));
            assert_eq!(before, after);
            // Nor is it deleted.
            let reset = limiter.reset(policy("p", quota).charge("alice", 1)).await;
            assert_says(&reset.expect_err("refused"), ErrorKind::WrongType, "left as it is");
            assert_eq!(server.keys().len(), 1);
        }
        server.ask::<()>(&format!("DEL {key}"));
    }
}

/// A server that shakes hands and then always says the same.
pub(crate) fn answering(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}/", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let mut bytes = [0; 65_536];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                    // Each command begins with an array of words.
                    let commands = text.matches('*').count();
                    for _ in 0..commands {
                        let hello = !text.contains("EVAL");
                        let reply = if hello { b"+OK\r\n" } else { answer };
                        if stream.write_all(reply).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn answers_that_are_not_ours() {
    for (answer, kind, advice) in [
        (&b"-LOADING Redis is loading the dataset in memory\r\n"[..], ErrorKind::Loading, "wait"),
        (b"+OK\r\n", ErrorKind::Protocol, "in its place"),
        (b":7\r\n", ErrorKind::Protocol, "in its place"),
        (b"$-1\r\n", ErrorKind::Protocol, "in its place"),
        (b"$5\r\nhello\r\n", ErrorKind::Protocol, "in its place"),
        (b"*1\r\n:1\r\n", ErrorKind::Protocol, "in its place"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ErrorKind::Protocol, "check the address"),
        (b"-BUSY Redis is busy running a script\r\n", ErrorKind::Unavailable, "BUSY"),
    ] {
        let error = RedisStore::connect(&answering(answer)).await.expect_err("an odd answer");
        assert_says(&error, kind, advice);
    }
    // Numbers that are none.
    let mut nonsense = b"$72\r\n".to_vec();
    nonsense.extend([0xff; 72]);
    nonsense.extend(b"\r\n");
    let error = RedisStore::connect(&answering(nonsense.leak())).await.expect_err("nonsense");
    assert_says(&error, ErrorKind::Protocol, "in its place");
}
