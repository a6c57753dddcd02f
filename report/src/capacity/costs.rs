//! The processor time of Redis for a decision, by algorithm and by the size of the batches.

use std::time::Duration;

use plimsoll::{Algorithm, Policy, Quota};
use plimsoll_testing::{algorithms::with_parameters, servers::Server};

use crate::{
    load::{patient_limiter, saturate},
    redis_info::Counts,
};

/// The numbers of checks at a time. The more there are, the larger are the batches.
const TASKS: [u64; 5] = [1, 4, 16, 64, 256];
const KEYS: u64 = 1_000;
const TIME: Duration = Duration::from_millis(1_500);
const ROUNDS: usize = 3;

/// Prints a line for each round, each algorithm and each number of checks at a time.
pub(crate) async fn print() {
    println!("algorithm,tasks,decisions,calls,redis_cpu_us,decisions_per_second");
    for round in 0..ROUNDS {
        for algorithm in Algorithm::EACH {
            let quota = Quota::per_hour(10_000);
            let algorithm = with_parameters(*algorithm, 60, 10_000);
            let quota = quota.with_algorithm(algorithm).expect("it fits");
            let policy = Policy::new("limits", quota).expect("a valid name");
            let server = Server::start();
            let limiter = patient_limiter(&server.url()).await;
            // The first round of a server has to load the script and to create the keys.
            saturate(&limiter, &policy, KEYS, 64, Duration::from_millis(300)).await;
            for tasks in TASKS {
                let before = Counts::of(&server);
                let time = if round == 0 { TIME } else { TIME / 2 };
                let decisions = saturate(&limiter, &policy, KEYS, tasks, time).await;
                let (cpu, calls) = Counts::of(&server).since(before);
                let rate = decisions as f64 / time.as_secs_f64();
                let name = quota.algorithm().name();
                println!("{name},{tasks},{decisions},{calls},{cpu:.0},{rate:.0}");
            }
        }
    }
}
