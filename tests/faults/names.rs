//! A name server that hangs while the connections to Redis are lost.

use std::{cell::Cell, fs, path::PathBuf, time::Duration};

use plimsoll_testing::{
    servers::{Server, directory, run},
    web,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    server::{MANY_CONNECTIONS, SURE, Serving},
    stage::{Stage, measured},
};

/// A name server for the process of the server under test. It knows the address of `redis.test`.
struct NameServer {
    library: String,
    address: PathBuf,
}

/// The address at which Redis listens normally.
const USUAL: &str = "127.0.0.1";
/// A second address of the same Redis, through a [`Relay`].
const OTHER: &str = "127.0.0.2";

impl NameServer {
    fn start(address: &str) -> Self {
        let dir = directory();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/names.c");
        run(&dir, "cc", &["-shared", "-fPIC", "-o", "names.so", source, "-ldl"]);
        let library = dir.join("names.so").to_str().expect("utf-8").to_owned();
        let names = Self { library, address: dir.join("address") };
        names.answer(address);
        names
    }

    fn environment(&self) -> [(&str, &str); 2] {
        let address = self.address.to_str().expect("utf-8");
        [("LD_PRELOAD", &self.library), ("PLIMSOLL_TEST_ADDRESS", address)]
    }

    fn hang(&self) {
        fs::write(&self.address, "").expect("written");
    }

    fn answer(&self, address: &str) {
        // Renamed, so that it is never found empty.
        let new = self.address.with_extension("new");
        fs::write(&new, address).expect("written");
        fs::rename(new, &self.address).expect("renamed");
    }
}

/// Passes connections to [`OTHER`] on to Redis, until it is dropped.
struct Relay(#[allow(dead_code, reason = "its tasks end with it")] JoinSet<()>);

impl Relay {
    async fn start(port: u16) -> Self {
        let listener = TcpListener::bind((OTHER, port)).await.expect("a free address");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = TcpStream::connect((USUAL, port)).await.expect("Redis");
                connections.spawn(async move {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self(tasks)
    }
}

/// The most resolutions of a process that run at the same time, each in a thread of its own.
const MAX_RESOLUTIONS: u64 = 40;

async fn assert_survives(what: &str, hangs_for: Duration, environment: &[(&str, &str)]) {
    measured(async || {
        let (redis, names) = (Server::start(), NameServer::start(OTHER));
        let relay = Cell::new(Some(Relay::start(redis.port).await));
        let environment = [&names.environment(), environment].concat();
        let store = format!("redis://redis.test:{}/", redis.port);
        let before = Cell::new(0);
        // Redis moves to another address, so that only a new resolution can find it.
        let begin = async |server: &Serving| {
            before.set(server.role.status("Threads"));
            names.hang();
            drop(relay.take());
            sleep(hangs_for.saturating_sub(Duration::from_secs(1))).await;
        };
        let end = async |server: &Serving| {
            let hang = server.role.status("Threads") - before.get();
            eprintln!("measured: {what}: {hang} resolutions hang");
            assert!((1..=MAX_RESOLUTIONS).contains(&hang), "{hang}");
            // Other work of the application that needs a blocking thread gets one.
            let mut client = web::http1(server.address).await;
            let reply = timeout(Duration::from_secs(3), client.get("/blocking")).await;
            assert_eq!(reply.expect("in time").status, 200);
            names.answer(USUAL);
        };
        Stage::new(what, store).in_environment(&environment).run(begin, end).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_server_hangs_for_a_second() {
    assert_survives("DNS: hangs for 1 s", Duration::from_secs(1), &[]).await;
}

/// Some resolutions have been given up then, and most of those that hang notice only seconds later that
/// the name server is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_server_hangs_for_long() {
    for seconds in [6, 13] {
        let what = format!("DNS: hangs for {seconds} s");
        assert_survives(&what, Duration::from_secs(seconds), &[]).await;
    }
}

/// Without a breaker every request needs a connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_server_hangs_without_a_breaker() {
    for seconds in [1, 7] {
        let what = format!("DNS: hangs for {seconds} s, no breaker");
        assert_survives(&what, Duration::from_secs(seconds), &[SURE]).await;
    }
}

/// All connections look the name up at the same time, so all resolutions that hang notice at the same
/// time that the name server is back: after five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_server_hangs_for_many_connections() {
    let hangs_for = Duration::from_millis(1_500);
    assert_survives("DNS: hangs, 20 connections", hangs_for, &[MANY_CONNECTIONS]).await;
    let more = [MANY_CONNECTIONS, SURE];
    assert_survives("DNS: hangs, 20 connections, no breaker", hangs_for, &more).await;
}
