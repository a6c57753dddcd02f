//! A user that loses the right to one command while the limiter runs: what is charged has been admitted.

use std::time::Duration;

use plimsoll::{Limiter, RedisStore, Resilience, redis::RedisConfig};
use plimsoll_testing::{algorithms::each_quota, policy, servers::Server};
use tokio::time::Instant;

use crate::patient;

/// Logs that expire soon. Nothing comes back within [`WINDOW`].
const SHORT: [&str; 2] = ["100/4s", "100/4s sliding-buckets(1000)"];

/// The charges of a key under a quota, and those before a right is taken away, which write the state as a
/// whole.
const CHARGES: u64 = 50;
const CHARGES_BEFORE: u64 = 15;

/// The shortest window.
const WINDOW: Duration = Duration::from_secs(4);

/// The commands of a check.
const COMMANDS: &[&str] = &["get", "set", "getrange", "setrange", "pexpireat", "time"];

#[tokio::test]
async fn what_is_charged_has_been_admitted() {
    let server = Server::start();
    let admin = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let admin = Limiter::with_resilience(admin, Resilience::none());
    let mut refusals = 0;
    let each = each_quota("400/400d", 2, 400).map(|(quota, _)| quota);
    for quota in SHORT.into_iter().chain(each.iter().map(String::as_str)) {
        for command in COMMANDS {
            let mut runs = 0;
            // A run in which the machine was so late that units came back is not judged.
            while !is_judged(&server, &admin, quota, command, &mut refusals).await {
                runs += 1;
                assert!(runs < 10, "{quota} without {command}: the machine is late all the time");
            }
        }
    }
    assert!(refusals > 500, "{refusals} refusals");
}

/// Takes a right away while a key is charged, and compares what is charged with what has been admitted. Returns
/// false if it took too long.
async fn is_judged(
    server: &Server,
    admin: &Limiter,
    quota: &str,
    command: &str,
    refusals: &mut u64,
) -> bool {
    let start = Instant::now();
    server.ask::<()>("FLUSHALL");
    server.ask::<()>("ACL SETUSER part on >pw ~* +@all");
    let url = format!("redis://part:pw@127.0.0.1:{}/", server.port);
    let store = RedisStore::connect_with(RedisConfig::url(&url).with_settings(patient()))
        .await
        .expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let policy = policy("p", quota);
    let mut admitted = 0;
    for number in 0..CHARGES {
        if number == CHARGES_BEFORE {
            server.ask::<()>(&format!("ACL SETUSER part -{command}"));
        }
        match limiter.check(policy.charge("alice", 1)).await {
            Ok(decision) => admitted += u64::from(decision.is_allowed()),
            Err(_) => *refusals += 1,
        }
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    let peek = admin.peek(policy.charge("alice", 0)).await.expect("an answer");
    if start.elapsed() >= WINDOW {
        return false;
    }
    let standing = *peek.outcomes().next().expect("an outcome").standing();
    let charged = standing.limit - standing.remaining;
    assert_eq!(charged, admitted, "{quota} without {command}");
    true
}
