//! The same faults, over each way to Redis.

use std::{cell::RefCell, process::Command};

use crate::{
    server::Serving,
    stage::{Stage, measured},
    transport::{Route, Transport},
};
use plimsoll_testing::spoiling_proxy::Spoil;

fn signal(pid: u32, signal: &str) {
    let pid = pid.to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
}

/// Returns the part that fails, as the table of faults names it.
fn part(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "TCP",
        Transport::Tls => "TLS",
        Transport::Pool => "bb8 pool",
        Transport::UnixSocket => "unix socket",
    }
}

async fn killed(over: Transport) {
    measured(async || {
        let route = RefCell::new(Route::start(over));
        let (url, environment) = (route.borrow().url(), route.borrow().environment());
        let what = format!("{}: kill -9, restart without data", part(over));
        let stage = Stage::new(&what, url).in_environment(&environment).loses_data();
        let kill = async |_: &_| route.borrow_mut().redis.kill();
        stage.run(kill, async |_: &_| route.borrow_mut().redis.run()).await
    })
    .await;
}

async fn stopped(over: Transport) {
    measured(async || {
        let route = Route::start(over);
        let environment = route.environment();
        let what = format!("{}: SIGSTOP, SIGCONT", part(over));
        let stage = Stage::new(&what, route.url()).in_environment(&environment);
        let stop = async |_: &_| signal(route.redis.pid(), "-STOP");
        stage.run(stop, async |_: &_| signal(route.redis.pid(), "-CONT")).await
    })
    .await;
}

async fn spoilt(over: Transport, how: Spoil) {
    let what = match how {
        Spoil::Nothing => unreachable!("no fault"),
        Spoil::Delay => "replies 200 ms late",
        Spoil::Swallow => "replies swallowed",
        Spoil::Cut => "connections cut at each reply",
        Spoil::Truncate => "replies truncated",
        Spoil::Corrupt => "digits of replies changed",
    };
    let what = format!("{}: {what}", part(over));
    measured(async || {
        let route = Route::start(over);
        let environment = route.environment();
        let (proxy, url) = route.proxy().await;
        let stage = Stage::new(&what, url).in_environment(&environment);
        let spoil = async |_: &Serving| proxy.spoil(how);
        stage.run(spoil, async |_: &Serving| proxy.spoil(Spoil::Nothing)).await
    })
    .await;
}

/// Generates a test of each fault over one way.
macro_rules! faults_over {
    ($name:ident, [$($fault:ident: $run:expr),* $(,)?]) => {
        mod $name {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fault() {
                $run.await;
            })*
        }
    };
}

macro_rules! all_faults_over {
    ($name:ident, $transport:expr) => {
        faults_over!($name, [
            killed_and_started_again: killed($transport),
            stopped_and_continued: stopped($transport),
            replies_late: spoilt($transport, Spoil::Delay),
            replies_swallowed: spoilt($transport, Spoil::Swallow),
            connections_cut: spoilt($transport, Spoil::Cut),
            replies_truncated: spoilt($transport, Spoil::Truncate),
            replies_corrupted: spoilt($transport, Spoil::Corrupt),
        ]);
    };
}

all_faults_over!(tcp, Transport::Tcp);
all_faults_over!(tls, Transport::Tls);
all_faults_over!(pool, Transport::Pool);
// A socket loses and changes nothing on the way.
faults_over!(unix_socket, [
    killed_and_started_again: killed(Transport::UnixSocket),
    stopped_and_continued: stopped(Transport::UnixSocket),
    connections_cut: spoilt(Transport::UnixSocket, Spoil::Cut),
]);
