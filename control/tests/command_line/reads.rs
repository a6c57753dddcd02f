//! Changes that reach no process of the service: the command line says so.

use std::{env, fs, process::Command};

use plimsoll_control::{OverridesConfig, StoreKind};
use plimsoll_testing::role::Role;

use super::*;

/// A process of a service, which makes its overrides from its file alone, and prints each limit of the policy.
#[tokio::test]
#[ignore = "a role: another test starts it"]
async fn service() {
    let file = env::var("PLIMSOLL_TEST_FILE").expect("a role");
    let config = Config::from_path(file).expect("valid");
    let limiter = config.store().connect().await.expect("a store");
    let (place, registry) = (OverridesConfig::of(config.store()), config.registry().clone());
    let overrides = Overrides::connect(place, registry, limiter).await.expect("an answer");
    let demo = config.registry().get("demo").expect("registered");
    let mut last = 0;
    for _ in 0..12_000 {
        let limit = demo.policy().quota().limit();
        if limit != last {
            println!("\nlimit {limit}");
            last = limit;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(overrides);
}

const WARNING: &str = "no instance has read this change within 2s: is the service running with the same \
                       Redis and the prefix \"shop.limits\"?";

/// The file of a service with this prefix.
fn file(server: &Server, prefix: &str) -> String {
    let file = server.dir.join(format!("{prefix}.toml"));
    let store = format!("[store.redis]\nurl = '{}'\nprefix = '{prefix}'\n", server.url());
    fs::write(&file, format!("{CONFIG}{store}")).expect("written");
    file.display().to_string()
}

/// Changes the limit of the policy with a file, and returns what the command prints.
async fn set(file: &str, quota: &str) -> String {
    let mut command = plimsoll(&["--config", file, "override", "demo", quota, "--for", "1h"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.expect("no panic").expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_no_process_reads_is_a_warning() {
    let server = Server::start();
    let (own, other) = (file(&server, "shop.limits"), file(&server, "plim"));
    assert!(set(&own, "6/10min").await.contains(WARNING), "there is no service");

    let mut role = Role::start("reads::service", &[("PLIMSOLL_TEST_FILE", &own)]);
    assert_eq!(role.says("limit "), "6");
    // A machine that is busy for longer than a second would be a service with lag.
    let mut printed = String::new();
    for limit in 7..27 {
        printed = set(&own, &format!("{limit}/10min")).await;
        assert_eq!(role.says("limit "), limit.to_string());
        if !printed.contains("no instance") {
            break;
        }
    }
    assert!(!printed.contains("Warning"), "{printed}");

    let missed = set(&other, "99/10min").await;
    assert!(missed.contains("no instance") && missed.contains("the prefix \"plim\""), "{missed}");

    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &role.pid().to_string()]).status();
        assert!(status.expect("kill runs").success());
    };
    signal("-STOP");
    assert!(set(&own, "80/10min").await.contains(WARNING), "the service is stopped");
    signal("-CONT");
    // The change was stored, and the one under the other prefix has not arrived.
    assert_eq!(role.says("limit "), "80");
}

/// The overrides of a store in memory are in memory, and a store without one server needs the name of one.
#[tokio::test]
async fn overrides_are_where_the_store_is() {
    let connect = async |store: &str| {
        let text = format!("{CONFIG}{store}");
        let config = Config::from_text(&text, plimsoll_control::Format::Toml).expect("valid");
        let place = OverridesConfig::of(config.store());
        let registry = config.registry().clone();
        (config.store().kind(), Overrides::connect(place, registry, Limiter::in_memory()).await)
    };
    let (kind, connected) = connect("").await;
    assert_eq!(kind, StoreKind::Memory);
    assert_eq!(connected.expect("in memory").list(), []);
    let (_, connected) = connect("[store.redis]\ncluster = ['redis://127.0.0.1:1']").await;
    let error = connected.expect_err("a cluster").to_string();
    assert_eq!(
        error,
        "the store is a Redis Cluster, allowed is one Redis server: name it with OverridesConfig::server"
    );
}
