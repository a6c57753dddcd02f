//! A cluster in which the primary with most of the keys is dead, frozen, or replaced by its replica.

use std::{cell::RefCell, process::Command};

use crate::stage::{Stage, measured};
use plimsoll_testing::servers::{Cluster, Server, until};

/// The nodes go on when one is missing.
const ARGUMENTS: [&str; 4] =
    ["--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000"];

fn store(cluster: &Cluster) -> String {
    format!("cluster {}", cluster.urls().join(" "))
}

/// Returns the node with the most keys.
fn busiest(cluster: &Cluster) -> usize {
    (0..3).max_by_key(|node| cluster.nodes[*node].keys().len()).expect("three nodes")
}

fn is_up(node: &Server) -> bool {
    node.try_ask::<String>("CLUSTER INFO").is_ok_and(|info| info.contains("cluster_state:ok"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_killed_and_started_again() {
    measured(async || {
        let cluster = RefCell::new(Cluster::start_with(&ARGUMENTS));
        let store = store(&cluster.borrow());
        let killed = RefCell::new(0);
        let kill = async |_: &_| {
            let node = busiest(&cluster.borrow());
            killed.replace(node);
            cluster.borrow_mut().nodes[node].kill();
        };
        let start = async |_: &_| {
            let node = &mut cluster.borrow_mut().nodes[*killed.borrow()];
            node.run();
            until("the node takes requests", || is_up(node));
        };
        let what = "cluster: 1 of 3 nodes killed, restart without data";
        Stage::new(what, store).loses_data().run(kill, start).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_stopped_and_continued() {
    measured(async || {
        let cluster = Cluster::start_with(&ARGUMENTS);
        let stopped = RefCell::new(0);
        let signal = |signal: &str| {
            let pid = stopped.borrow().to_string();
            let status = Command::new("kill").args([signal, &pid]).status();
            assert!(status.expect("kill runs").success());
        };
        let stop = async |_: &_| {
            stopped.replace(cluster.nodes[busiest(&cluster)].pid());
            signal("-STOP");
        };
        let go_on = async |_: &_| {
            signal("-CONT");
            until("the cluster is up", || cluster.nodes.iter().all(is_up));
        };
        let what = "cluster: 1 of 3 nodes stopped and continued (SIGSTOP)";
        Stage::new(what, store(&cluster)).run(stop, go_on).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_promoted() {
    measured(async || {
        let cluster = Cluster::start_with(&ARGUMENTS);
        let replicas = [0, 1, 2].map(|node| cluster.replica_of(node, &ARGUMENTS, 4 + node));
        let store = store(&cluster);
        let (cluster, killed) = (RefCell::new(cluster), RefCell::new(0));
        let kill = async |_: &_| {
            let node = busiest(&cluster.borrow());
            killed.replace(node);
            cluster.borrow_mut().nodes[node].kill();
        };
        let promoted = async |_: &_| {
            let replica = &replicas[*killed.borrow()];
            until("the replica is promoted", || replica.is_primary() && is_up(replica));
        };
        let what = "cluster: 1 of 3 primaries killed, its replica promoted";
        Stage::new(what, store).run(kill, promoted).await
    })
    .await;
}
