//! A batch that spends a paid quota, in two processes, while Redis fails.

use std::{process::Command, time::Duration};

use plimsoll::{Decision, Error, Limiter, Policy, Quota, RedisStore};
use plimsoll_testing::{
    calm::{eventually, on_a_calm_machine},
    servers::Server,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

const QUOTA: u64 = 9_500;
/// The units of one call.
const COST: u64 = 25;

/// Calls until the quota is spent, or the store does not answer within 5 s. Returns the units.
async fn batch(url: String) -> Result<(u64, Option<Error>), Error> {
    let limiter = Limiter::new(RedisStore::connect(&url).await?);
    let day = Policy::new("upstream-day", Quota::per_day(QUOTA))?;
    let mut units = 0;
    loop {
        let charge = day.charge("our-account", COST);
        match limiter.until_ready(charge, Duration::from_secs(5)).await {
            Ok(Decision::Allowed(_)) => units += COST,
            Ok(Decision::Denied(_)) => return Ok((units, None)),
            Err(error) => return Ok((units, Some(error))),
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn two_batches(server: &Server) -> JoinSet<Result<(u64, Option<Error>), Error>> {
    let mut batches = JoinSet::new();
    for _ in 0..2 {
        batches.spawn(batch(server.url()));
    }
    eventually("both are connected, and one has spent units", async || {
        // Two connections of each, and the connection of this question.
        let clients: usize = server.info("clients", "connected_clients").parse().expect("a number");
        clients > 2 * 2 && !server.keys().is_empty()
    })
    .await;
    sleep(Duration::from_millis(300)).await;
    batches
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_stops_while_redis_is_gone() -> Result<(), Error> {
    let mut server = Server::start();
    let mut batches = two_batches(&server).await;
    let killed = Instant::now();
    server.kill();
    let mut spent = 0;
    while let Some(batch) = batches.join_next().await {
        let (units, error) = batch.expect("no panic")?;
        spent += units;
        assert!(error.expect("Redis is gone").is_unavailable());
    }
    // The check in flight has waited for up to its deadline before.
    assert!(killed.elapsed() >= Duration::from_millis(4_900), "they wait");
    assert!((1..QUOTA).contains(&spent), "{spent} units before the outage");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_goes_on_when_redis_is_back() {
    on_a_calm_machine(go_on_when_redis_is_back).await;
}

/// Returns an error if much was charged for calls that were not made.
async fn go_on_when_redis_is_back() -> Result<(), String> {
    let server = Server::start();
    let mut batches = two_batches(&server).await;
    let signal = |name: &str| {
        let pid = server.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill runs").success());
    };
    signal("-STOP");
    sleep(Duration::from_secs(2)).await;
    signal("-CONT");
    let mut spent = 0;
    while let Some(batch) = batches.join_next().await {
        let (units, error) = batch.expect("no panic").expect("connected");
        spent += units;
        assert!(error.is_none(), "{error:?}");
    }
    // Redis has charged some calls whose reply came too late. Their units are not used.
    assert!(spent <= QUOTA, "{spent} units");
    // On a busy machine, more replies are late.
    if spent >= QUOTA - 20 * COST { Ok(()) } else { Err(format!("{spent} units")) }
}
