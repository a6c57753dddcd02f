//! Sentinels that disagree: three of them, of which two must agree on a failover.

use std::{cell::RefCell, process::Command};

use crate::stage::{Stage, measured};
use plimsoll_testing::servers::{Guarded, Server, until};

fn signal(signal: &str, servers: &[&Server]) {
    for server in servers {
        let pid = server.pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
    }
}

fn store(guarded: &Guarded) -> String {
    format!("sentinel {} {}", Guarded::NAME, guarded.urls().join(" "))
}

/// Without a majority nothing is promoted. When the others are back, they promote the replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_quorum() {
    measured(async || {
        let guarded = Guarded::by(3);
        let others: Vec<&Server> = guarded.others.iter().collect();
        let begin = async |_: &_| {
            signal("-STOP", &others);
            signal("-STOP", &[&guarded.primary]);
        };
        let end = async |_: &_| {
            let flags = || guarded.flags_of_primary();
            until("one sentinel misses the primary", || flags().contains("s_down"));
            assert!(!flags().contains("o_down"), "one sentinel of three is no majority");
            assert!(!guarded.replica.is_primary(), "one sentinel of three is no majority");
            signal("-CONT", &others);
            until("the replica is promoted", || guarded.replica.is_primary());
        };
        let what = "Sentinel: primary and 2 of 3 sentinels stopped, sentinels continued";
        let figures = Stage::new(what, store(&guarded)).run(begin, end).await;
        signal("-CONT", &[&guarded.primary]);
        figures
    })
    .await;
}

/// The first sentinel and the old primary come back after the failover. For a while, this sentinel names
/// the old primary, which still has the role of a primary. Units that are charged there are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_comes_back_with_its_sentinel() {
    measured(async || {
        let guarded = Guarded::by(3);
        let apart = [&guarded.primary, &guarded.sentinel];
        let begin = async |_: &_| {
            signal("-STOP", &apart);
            until("the replica is promoted", || guarded.replica.is_primary());
        };
        let end = async |_: &_| signal("-CONT", &apart);
        let what = "Sentinel: old primary and 1 of 3 sentinels back after a failover";
        Stage::new(what, store(&guarded)).loses_data().run(begin, end).await
    })
    .await;
}

/// A fourth sentinel does not know of the failover, and names the dead primary for as long as the test
/// lasts. It is the first that the store asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_keeps_naming_a_dead_primary() {
    measured(async || {
        let guarded = Guarded::by(3);
        let isolated = guarded.isolated_sentinel();
        let urls = [vec![isolated.url()], guarded.urls()].concat().join(" ");
        let Guarded { primary, replica, sentinel: _first, others: _others } = guarded;
        let primary = RefCell::new(primary);
        let begin = async |_: &_| primary.borrow_mut().kill();
        let end = async |_: &_| {
            until("the replica is promoted", || replica.is_primary());
            let command = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", Guarded::NAME);
            let (_, port): (String, u16) = isolated.ask(&command);
            assert_eq!(port, primary.borrow().port, "it names the old primary");
        };
        let what = "Sentinel: primary killed, 1 of 4 sentinels keeps naming it";
        Stage::new(what, format!("sentinel {} {urls}", Guarded::NAME)).run(begin, end).await
    })
    .await;
}
