//! A job that respects the quota of an upstream API: `cargo run -p plimsoll-examples --example ingest`.
//!
//! The job never spends more than the quota of the upstream API. While Redis cannot answer, it waits for
//! Redis, and then ends with the error: a web request would be decided by the process itself.
//!
//! The upstream API allows 9,500 units a day. Listing a region costs 1 unit, and each search in it
//! costs 100. Searches have a second limit, 5 in 100 ms. The job processes 8 regions. It waits for
//! short waits and stops cleanly when the daily budget is spent.

mod support;

use std::time::Duration;

use plimsoll::{Decision, Limiter, Policy, Quota, decision::Denied};

const REGIONS: [&str; 8] =
    ["eu-north", "eu-west", "eu-south", "us-east", "us-west", "ap-north", "ap-south", "sa-east"];
const SEARCHES: u64 = 20;
/// The key of all charges: the upstream API counts the whole account.
const ACCOUNT: &str = "our-account";
/// The longest wait for one charge. A longer wait ends the job, and its next run continues.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

struct Upstream {
    limiter: Limiter,
    day: Policy,
    searches: Policy,
}

#[tokio::main]
async fn main() -> support::Outcome<()> {
    let upstream = Upstream {
        limiter: support::limiter_from_env().await?,
        day: Policy::new("upstream-day", Quota::per_day(9_500))?,
        searches: Policy::new("upstream-search", "5/100ms")?,
    };
    let mut done = 0;
    for region in REGIONS {
        match upstream.ingest(region).await? {
            Ok(()) => done += 1,
            Err(denied) => {
                println!("{region}: the budget is spent");
                report(&denied);
                break;
            }
        }
    }
    // A peek spends nothing.
    let left = upstream.limiter.peek(upstream.day.charge(ACCOUNT, 0)).await?;
    let left = left.binding().map_or(0, |binding| binding.standing().remaining);
    println!("{done} of {} regions done, {left} units left today", REGIONS.len());
    Ok(())
}

impl Upstream {
    /// Processes one region. The inner result is the denial that ended it.
    async fn ingest(&self, region: &str) -> support::Outcome<Result<(), Denied<'_>>> {
        let list = [self.day.charge(ACCOUNT, 1)];
        if let Decision::Denied(denied) = self.limiter.until_ready(list, LONGEST_WAIT).await? {
            return Ok(Err(denied));
        }
        for search in 0..SEARCHES {
            // Both charges are admitted or neither is, so a search that waits spends nothing of the day.
            let charges = [self.day.charge(ACCOUNT, 100), self.searches.charge(ACCOUNT, 1)];
            if let Decision::Denied(denied) =
                self.limiter.until_ready(charges, LONGEST_WAIT).await?
            {
                println!("{region}: {search} of {SEARCHES} searches done");
                return Ok(Err(denied));
            }
        }
        println!("{region}: done");
        Ok(Ok(()))
    }
}

fn report(denied: &Denied<'_>) {
    let policy = denied.binding().map_or("", |binding| binding.charge().policy().name());
    match denied.retry_after() {
        Some(wait) => println!("come back in {} s ({policy})", wait.as_secs() + 1),
        None => println!("this can never be afforded ({policy})"),
    }
}
