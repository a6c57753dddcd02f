//! Checks per second of 64 tasks with a trial beside a live charge, beside two live charges.

use plimsoll::{Key, Limiter, Policy, RedisStore, Resilience};

use crate::{
    server::Server,
    throughput::{Measurements, median, round},
};

const TASKS: usize = 64;
const KEYS: u64 = 1_000;
const ROUNDS: usize = 7;

pub(crate) async fn run(seconds: f64) {
    let server = Server::start();
    let store = RedisStore::connect(&server.url()).await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    println!(
        "{TASKS} tasks, {KEYS} keys, a live charge and a second one; {ROUNDS} interleaved rounds"
    );
    println!("{:<40} {:>9} {:>9} {:>6} {:>5}", "", "trial/s", "live/s", "ratio", "bar");
    let bucket = "1000000/s token-bucket(1000000)";
    for (what, first, second) in [
        ("two buckets that allow", bucket, bucket),
        ("two logs that allow", "10000/100ms", "10000/100ms"),
        ("the first denies", "1/d", bucket),
    ] {
        let [first, tried, live] = [("first", first), ("trial", second), ("live", second)]
            .map(|(name, quota)| Policy::new(name, quota).expect("valid"));
        let (mut trials, mut lives) = (Measurements::default(), Measurements::default());
        for _ in 0..ROUNDS {
            for is_trial in [true, false] {
                let (limiter, first) = (limiter.clone(), first.clone());
                let second = if is_trial { tried.clone() } else { live.clone() };
                let measured = if is_trial { &mut trials } else { &mut lives };
                round(TASKS, seconds, KEYS, measured, move |key| {
                    let (limiter, first, second) = (limiter.clone(), first.clone(), second.clone());
                    async move {
                        let key = Key::from(key);
                        let charge = second.charge(key, 1);
                        let charge = if is_trial { charge.trial() } else { charge };
                        let decision = limiter.check([first.charge(key, 1), charge]).await;
                        let _ = decision.expect("an answer");
                    }
                })
                .await;
            }
        }
        // Each round is compared with the one beside it.
        let ratios = lives.rates.iter().zip(&trials.rates).map(|(live, trial)| live / trial);
        let ratio = median(&ratios.collect::<Vec<_>>());
        let (trial, live) = (median(&trials.rates), median(&lives.rates));
        println!("{what:<40} {trial:>9.0} {live:>9.0} {ratio:>6.2} {:>5}", 1.0);
    }
}
