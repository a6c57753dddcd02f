//! Faults of Redis itself, and of the way to it.

use std::{cell::RefCell, thread, time::Duration};

use crate::stage::{Stage, measured};
use plimsoll_testing::{
    servers::{Guarded, Server, debug_arguments, until},
    spoiling_proxy::Proxy,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asleep() {
    measured(async || {
        let server = Server::start_with(debug_arguments());
        let asleep = RefCell::new(None);
        let sleep = async |_: &_| {
            let client = server.client();
            *asleep.borrow_mut() = Some(thread::spawn(move || {
                let mut connection = client.get_connection().expect("a connection");
                redis::cmd("DEBUG")
                    .arg("SLEEP")
                    .arg("1")
                    .query::<()>(&mut connection)
                    .expect("slept");
            }));
        };
        let wake = async |_: &_| asleep.take().expect("it sleeps").join().expect("it slept");
        Stage::new("Redis: DEBUG SLEEP 1", server.url()).run(sleep, wake).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory() {
    measured(async || {
        let server = Server::start();
        server.ask::<()>("CONFIG SET maxmemory-policy noeviction");
        let fill = async |_: &_| server.ask::<()>("CONFIG SET maxmemory 1");
        let empty = async |_: &_| server.ask::<()>("CONFIG SET maxmemory 0");
        Stage::new("Redis: out of memory", server.url()).run(fill, empty).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_a_replica() {
    measured(async || {
        let server = Server::start();
        let demote = async |_: &_| server.ask::<()>("REPLICAOF 127.0.0.1 1");
        let promote = async |_: &_| server.ask::<()>("REPLICAOF NO ONE");
        Stage::new("Redis: made a read-only replica", server.url()).run(demote, promote).await
    })
    .await;
}

/// The files of the server may not grow any more, as on a full disk. The server refuses to write until
/// there is room again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_full() {
    measured(async || {
        let server = Server::start_with(&["--appendonly", "yes"]);
        let fill = async |_: &_| {
            server.limit_files("1");
            server.until_wrote("err");
        };
        let empty = async |_: &_| {
            server.limit_files("unlimited");
            server.until_wrote("ok");
        };
        Stage::new("Redis: disk full", server.url()).run(fill, empty).await
    })
    .await;
}

/// The primary dies for good. The data of the replica is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted() {
    measured(async || {
        let Guarded { primary, replica, sentinel, .. } = Guarded::start();
        let primary = RefCell::new(primary);
        let promoted = async |_: &_| until("the replica is promoted", || replica.is_primary());
        let kill = async |_: &_| primary.borrow_mut().kill();
        let store = format!("sentinel {} {}", Guarded::NAME, sentinel.url());
        Stage::new("Sentinel: primary killed, replica promoted", store).run(kill, promoted).await
    })
    .await;
}

/// A new connection takes longer than the deadline of a check. Later checks use it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_lost_far_away() {
    measured(async || {
        let server = Server::start();
        let proxy = Proxy::far_away(server.port, Duration::from_millis(120)).await;
        let kill = async |_: &_| {
            let _: i64 = server.ask("CLIENT KILL TYPE normal SKIPME yes");
        };
        let stage = Stage::new("network: connections lost, connecting takes 120 ms", proxy.url());
        stage.run(kill, async |_: &_| ()).await
    })
    .await;
}
