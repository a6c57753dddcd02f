//! Shares one budget among several processes:
//! `REDIS_URL=redis://127.0.0.1/ cargo run -p plimsoll-examples --features redis --example shared_budget`.
//!
//! Four processes with eight tasks each spend the units of one key as fast as they can. Redis decides
//! each check in one atomic step, so together they get exactly the limit.

use std::{
    env,
    error::Error,
    process::{Command, Stdio},
};

use plimsoll::{Decision, Limiter, Policy, Quota, RedisStore};

const LIMIT: u64 = 1_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    // A web service would set `RedisConfig::lazy`, and start without Redis. This job needs it.
    let limiter = Limiter::new(RedisStore::connect(&url).await?);
    let budget = Policy::new("shared-budget", Quota::per_hour(LIMIT))?;
    if env::args().nth(1).as_deref() == Some("worker") {
        println!("{}", work(&limiter, &budget).await?);
        return Ok(());
    }

    // Forget the units that an earlier run has spent.
    limiter.reset(budget.charge("everybody", 0)).await?;
    // Each child runs this program again, with the argument `worker`.
    let mut children = Vec::new();
    for _ in 0..4 {
        let mut command = Command::new(env::current_exe()?);
        children.push(command.arg("worker").env("REDIS_URL", &url).stdout(Stdio::piped()).spawn()?);
    }
    let mut total = 0;
    for (number, child) in children.into_iter().enumerate() {
        let output = String::from_utf8(child.wait_with_output()?.stdout)?;
        let admitted: u64 = output.trim().parse()?;
        println!("process {number}: {admitted} units admitted");
        total += admitted;
    }
    println!("together: {total} of {LIMIT}");
    if total != LIMIT {
        return Err("the budget was not shared".into());
    }
    Ok(())
}

/// Runs eight tasks that spend until they are denied, and returns the number of units they got.
async fn work(limiter: &Limiter, budget: &Policy) -> Result<u64, Box<dyn Error>> {
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let limiter = limiter.clone();
            let budget = budget.clone();
            tokio::spawn(async move {
                let mut admitted = 0;
                while let Decision::Allowed(_) =
                    limiter.check(budget.charge("everybody", 1)).await?
                {
                    admitted += 1;
                }
                Ok::<u64, plimsoll::Error>(admitted)
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await??;
    }
    Ok(admitted)
}
