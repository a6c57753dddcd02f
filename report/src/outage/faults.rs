//! The four ways in which Redis fails, each for four seconds.

use std::{process::Command, time::Duration};

use plimsoll_testing::servers::{Server, until};
use tokio::time::{Instant, sleep, sleep_until};

use super::proxy::Address;

/// The time from the first request to the fault.
pub(crate) const BEFORE: Duration = Duration::from_millis(2_500);
pub(crate) const FAULT: Duration = Duration::from_secs(4);
pub(crate) const AFTER: Duration = Duration::from_secs(3);

/// A kind of outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server is killed. An empty one is started at the end.
    Killed,
    /// The process is stopped, and goes on at the end.
    Hung,
    /// Each reply is 200 ms late.
    Slow,
    /// The server is killed. After a second, its replica is promoted, and the address leads there.
    FailedOver,
}

impl Fault {
    pub(crate) const EACH: [Self; 4] = [Self::Killed, Self::Hung, Self::Slow, Self::FailedOver];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Hung => "hung",
            Self::Slow => "slow",
            Self::FailedOver => "failed over",
        }
    }

    /// Breaks the server at its time after `begin`, and mends it.
    pub(crate) async fn play(self, begin: Instant, servers: &mut Servers, address: &Address) {
        let (fails, ends) = (begin + BEFORE, begin + BEFORE + FAULT);
        sleep_until(fails).await;
        match self {
            Self::Killed => {
                servers.primary.kill();
                sleep_until(ends).await;
                tokio::task::block_in_place(|| servers.primary.run());
            }
            Self::Hung => {
                signal("-STOP", &servers.primary);
                sleep_until(ends).await;
                signal("-CONT", &servers.primary);
            }
            Self::Slow => {
                address.delay(Duration::from_millis(200));
                sleep_until(ends).await;
                address.delay(Duration::ZERO);
            }
            Self::FailedOver => {
                servers.primary.kill();
                sleep(Duration::from_secs(1)).await;
                let replica = servers.replica.port;
                let client = servers.replica.client();
                let promote = async || -> redis::RedisResult<()> {
                    let mut connection = client.get_multiplexed_async_connection().await?;
                    redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut connection).await
                };
                promote().await.expect("it is promoted");
                address.move_to(replica);
                sleep_until(ends).await;
            }
        }
    }
}

fn signal(signal: &str, server: &Server) {
    let pid = server.pid().to_string();
    let status = Command::new("kill").args([signal, &pid]).status();
    assert!(status.expect("kill runs").success());
}

/// A server and its replica.
pub(crate) struct Servers {
    pub(crate) primary: Server,
    replica: Server,
}

impl Servers {
    pub(crate) fn start() -> Self {
        let (primary, replica) = (Server::start(), Server::start());
        replica.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
        until("the replica follows", || replica.info("replication", "master_link_status") == "up");
        Self { primary, replica }
    }
}
