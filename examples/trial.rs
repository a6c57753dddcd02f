//! Tries out a looser limit, as a shadow and as a trial: `cargo run -p plimsoll-examples --example trial`.
//!
//! The live limit is 100 a minute, and clients ask for 300 in a minute. With a limit of 200, 100 of them
//! would be denied. The shadow sees only the requests that the live limit admits, so it reports no denial. The trial
//! reports 100.
//!
//! With the argument `--decisions`, each decision is a line.

use std::{env, error::Error, time::Duration};

use plimsoll::{
    Limiter, MemoryStore, Policy,
    clock::{Clock, ManualClock},
    memory::MemoryConfig,
    policy::TrialCounts,
    store::Verdict,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // The clock is set by hand, so the example does not sleep.
    let clock = ManualClock::at(0);
    let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
    let limiter = Limiter::new(store);
    let live = Policy::new("live", "100/min")?;
    let shadow = Policy::new("shadow", "200/min")?;
    let trial = Policy::new("trial", "200/min")?;
    let each = env::args().any(|argument| argument == "--decisions");

    let mut denied = [0; 3];
    for _ in 0..300 {
        let charges = [
            live.charge("client", 1),
            shadow.charge("client", 1).shadow(),
            trial.charge("client", 1).trial(),
        ];
        let decision = limiter.check(charges).await?;
        let allows = [0, 1, 2].map(|position| {
            let verdict = decision.outcomes().nth(position).map(|outcome| outcome.verdict());
            verdict == Some(Verdict::Passed)
        });
        for (denied, allows) in denied.iter_mut().zip(allows) {
            *denied += u32::from(!allows);
        }
        if each {
            let [live, shadow, trial] = allows;
            println!("{},{live},{shadow},{trial}", clock.now().as_micros() / 1_000);
        }
        clock.advance(Duration::from_millis(200));
    }
    if !each {
        let [live, shadow, by_trial] = denied;
        println!("denied by the live limit of 100:    {live}");
        println!("a shadow of 200 would deny:         {shadow}");
        println!("a trial of 200 would deny:          {by_trial}");
        let TrialCounts { allowed_by_both, allowed_by_trial_only, denied_by_both, .. } =
            trial.trial_counts();
        println!(
            "allowed by both, by the trial only, by none: \
             {allowed_by_both}, {allowed_by_trial_only}, {denied_by_both}"
        );
    }
    Ok(())
}
