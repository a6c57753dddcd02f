//! Packets lost between the server and Redis. The firewall of a network namespace of their own drops
//! them, so these tests need `unshare`, `ip` and `nft`.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{
    stage::{Stage, measured},
    whole_machine,
};
use plimsoll_testing::servers::Server;

/// The share that is lost, in percent.
const PERCENT: &str = "PLIMSOLL_TEST_LOSS";
/// The network namespace of the machine, in which nothing may be dropped.
const OUTSIDE: &str = "PLIMSOLL_TEST_OUTSIDE";

fn namespace() -> PathBuf {
    fs::read_link("/proc/self/ns/net").expect("a namespace")
}

/// Runs `in_namespace` in a network namespace of its own.
async fn lost(percent: u32) {
    let _whole = whole_machine().await;
    let status = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c"])
        .arg("ip link set lo up && exec \"$0\" --ignored --exact loss::in_namespace --nocapture")
        .arg(env::current_exe().expect("this test"))
        .env(PERCENT, percent.to_string())
        .env(OUTSIDE, namespace())
        .stdout(Stdio::null())
        .status();
    let status = status.expect("unshare runs");
    assert!(status.success(), "packet loss was not measured, or broke a promise: {status}");
}

/// The role of the process in the namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role: another test starts it"]
async fn in_namespace() {
    let percent = env::var(PERCENT).expect("a role");
    assert_ne!(env::var(OUTSIDE).expect("set"), namespace().to_str().expect("utf-8"));
    let what = format!("network: {percent}% of the packets of Redis lost");
    measured(async || {
        let server = Server::start();
        let lose = async |_: &_| {
            let either = ["dport", "sport"].map(|port| {
                format!("tcp {port} {} numgen random mod 100 < {percent} drop;", server.port)
            });
            firewall(&format!(
                "table inet loss {{ chain input {{ type filter hook input priority 0; {} {} }}; }}",
                either[0], either[1]
            ));
        };
        let lose_nothing = async |_: &_| firewall("delete table inet loss");
        Stage::new(&what, server.url()).run(lose, lose_nothing).await
    })
    .await;
}

fn firewall(rules: &str) {
    let status = Command::new("nft").arg(rules).status();
    assert!(status.expect("nft runs").success(), "{rules}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_packet_in_20() {
    lost(5).await;
}
