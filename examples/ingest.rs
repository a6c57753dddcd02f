//! A job on somebody else's quota: `cargo run --example ingest`.
//!
//! The upstream API allows 9,500 units a day. Listing a region costs 1 unit, and each search in it
//! 100; searches have a limit of their own, 5 in 100 ms. The job walks 8 regions, waits where
//! waiting is short, and stops cleanly when the day's budget is spent.

mod support;

use std::time::Duration;

use tollgate::{Decision, Denied, Limiter, Policy, Quota};

const REGIONS: [&str; 8] =
    ["eu-north", "eu-west", "eu-south", "us-east", "us-west", "ap-north", "ap-south", "sa-east"];
const SEARCHES: u64 = 20;
/// Everything is spent by one account, ours.
const ACCOUNT: &str = "our-account";
/// The job waits for so long; what takes longer is for its next run.
const PATIENCE: Duration = Duration::from_secs(5);

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
        searches: Policy::new("upstream-search", Quota::new(5, Duration::from_millis(100))?)?,
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
    let left = upstream.limiter.peek(upstream.day.charge(ACCOUNT, 0)).await?;
    let left = left.binding().map_or(0, |binding| binding.standing().remaining());
    println!("{done} of {} regions done, {left} units left today", REGIONS.len());
    Ok(())
}

impl Upstream {
    async fn ingest(&self, region: &str) -> support::Outcome<Result<(), Denied<'_>>> {
        let list = [self.day.charge(ACCOUNT, 1)];
        if let Decision::Denied(denied) = self.limiter.until_ready(list, PATIENCE).await? {
            return Ok(Err(denied));
        }
        for search in 0..SEARCHES {
            // Both limits or neither: a search that must wait spends nothing of the day.
            let charges = [self.day.charge(ACCOUNT, 100), self.searches.charge(ACCOUNT, 1)];
            if let Decision::Denied(denied) = self.limiter.until_ready(charges, PATIENCE).await? {
                println!("{region}: {search} of {SEARCHES} searches done");
                return Ok(Err(denied));
            }
        }
        println!("{region}: done");
        Ok(Ok(()))
    }
}

fn report(denied: &Denied<'_>) {
    let policy = denied.binding().map_or("", |binding| binding.policy().name());
    match denied.retry_after() {
        Some(wait) => println!("come back in {} s ({policy})", wait.as_secs() + 1),
        None => println!("this can never be afforded ({policy})"),
    }
}
