//! A name service that hangs while the connections to Redis are lost.

use std::{cell::Cell, fs, path::PathBuf, time::Duration};

use tokio::time::timeout;

use crate::{
    common_http,
    server::{SURE, Serving},
    servers::{Server, directory, run},
    stage::{Stage, measured},
};

/// Names for the server's process, which hang while a file exists.
struct Names {
    library: String,
    stalled: PathBuf,
}

impl Names {
    fn new() -> Self {
        let dir = directory();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/names.c");
        run(&dir, "cc", &["-shared", "-fPIC", "-o", "names.so", source, "-ldl"]);
        let library = dir.join("names.so").to_str().expect("utf-8").to_owned();
        Self { library, stalled: dir.join("stalled") }
    }

    fn environment(&self) -> [(&str, &str); 2] {
        let stalled = self.stalled.to_str().expect("utf-8");
        [("LD_PRELOAD", &self.library), ("TOLLGATE_TEST_STALLED", stalled)]
    }

    fn stall(&self) {
        fs::write(&self.stalled, "").expect("written");
    }

    fn answer(&self) {
        fs::remove_file(&self.stalled).expect("removed");
    }
}

/// The most lookups of a process that hang at the same time, each in a thread of its own.
const MOST: u64 = 20;

async fn bear(what: &str, more: &[(&str, &str)]) {
    measured(async || {
        let (redis, names) = (Server::start(), Names::new());
        let environment = [&names.environment(), more].concat();
        let store = format!("redis://redis.test:{}/", redis.port);
        let before = Cell::new(0);
        let begin = async |server: &Serving| {
            before.set(server.role.status("Threads"));
            names.stall();
            let _: i64 = redis.ask("CLIENT KILL TYPE normal SKIPME yes");
        };
        let end = async |server: &Serving| {
            let hang = server.role.status("Threads") - before.get();
            eprintln!("measured: {what}: {hang} lookups hang");
            assert!((1..=MOST).contains(&hang), "{hang}");
            // Other work of the application that needs such a thread gets one.
            let mut client = common_http::http1(server.address).await;
            let reply = timeout(Duration::from_millis(500), client.get("/blocking")).await;
            assert_eq!(reply.expect("in time").status, 200);
            names.answer();
        };
        Stage::new(what, store).in_environment(&environment).bear(begin, end).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_hang() {
    bear("DNS stall", &[]).await;
}

/// Nobody is left alone: every request asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_hang_without_a_breaker() {
    bear("DNS stall, no breaker", &[SURE]).await;
}
