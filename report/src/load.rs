//! Checks of a limiter: as many as possible, or at a steady rate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use plimsoll::{Limiter, Policy, RedisStore, Resilience, redis::RedisConfig};
use plimsoll_testing::seed::Random;
use tokio::{
    runtime::Handle,
    task::{JoinSet, spawn_blocking},
    time::Instant,
};

/// Connects to a server whose replies are waited for also on a busy machine, without any other stage.
pub(crate) async fn patient(url: &str) -> RedisStore {
    let patience = Duration::from_secs(30);
    let config = RedisConfig::url(url).connect_timeout(patience).response_timeout(patience);
    RedisStore::connect_with(config).await.expect("a store")
}

/// Returns a limiter over [`patient`].
pub(crate) async fn patient_limiter(url: &str) -> Limiter {
    Limiter::with_resilience(patient(url).await, Resilience::none())
}

/// Checks random keys in `tasks` tasks that do not pause. Returns the number of decisions in `time`.
pub(crate) async fn saturate(
    limiter: &Limiter,
    policy: &Policy,
    keys: u64,
    tasks: u64,
    time: Duration,
) -> u64 {
    let end = Instant::now() + time;
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        running.spawn(async move {
            let (mut random, mut decisions) = (Random(task), 0);
            while Instant::now() < end {
                let decision = limiter.check(policy.charge(random.below(keys), 1)).await;
                let _ = decision.expect("the store answers");
                decisions += 1;
            }
            decisions
        });
    }
    running.join_all().await.into_iter().sum()
}

/// Charges one unit of each key, with 256 checks at a time.
pub(crate) async fn charge_each(limiter: &Limiter, policy: &Policy, keys: u64) {
    charge(limiter, policy, keys, |number| number).await;
}

/// Makes `total` charges of one unit, each of a random key, with 256 checks at a time.
pub(crate) async fn charge_random(limiter: &Limiter, policy: &Policy, keys: u64, total: u64) {
    charge(limiter, policy, total, move |number| Random(number).below(keys)).await;
}

async fn charge(
    limiter: &Limiter,
    policy: &Policy,
    total: u64,
    key: impl Fn(u64) -> u64 + Copy + Send + 'static,
) {
    let next = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for _ in 0..256 {
        let (limiter, policy, next) = (limiter.clone(), policy.clone(), Arc::clone(&next));
        running.spawn(async move {
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= total {
                    return;
                }
                let decision = limiter.check(policy.charge(key(number), 1)).await;
                assert!(decision.expect("the store answers").is_allowed());
            }
        });
    }
    running.join_all().await;
}

/// Checks keys at `rate` a second for `time`, evenly through all limiters, each of which stands for a
/// process. Checks arrive at random, as from many clients, and do not wait for each other. Returns the number
/// of decisions, and of admissions.
pub(crate) async fn steady(
    limiters: &[Limiter],
    policy: &Policy,
    rate: f64,
    time: Duration,
    key: impl Fn(&mut Random) -> u64 + Clone + Send + 'static,
) -> (u64, u64) {
    let rate = rate / limiters.len() as f64;
    let total = (time.as_secs_f64() * rate) as u64;
    let senders = limiters.iter().enumerate().map(|(number, limiter)| {
        let (limiter, policy, key) = (limiter.clone(), policy.clone(), key.clone());
        let (runtime, mut random) = (Handle::current(), Random(number as u64));
        // The timer of tokio ticks once a millisecond. Checks that start together share commands.
        spawn_blocking(move || {
            let (mut checks, mut admitted, mut due) = (JoinSet::new(), 0, Instant::now());
            for _ in 0..total {
                due += Duration::from_secs_f64(random_gap(&mut random) / rate);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let (limiter, policy, key) = (limiter.clone(), policy.clone(), key(&mut random));
                let check = async move {
                    let decision = limiter.check(policy.charge(key, 1)).await;
                    decision.is_ok_and(|it| it.is_allowed())
                };
                checks.spawn_on(check, &runtime);
                while let Some(is_allowed) = checks.try_join_next() {
                    admitted += u64::from(is_allowed.expect("no panic"));
                }
            }
            (checks, admitted)
        })
    });
    let senders: Vec<_> = senders.collect();
    let (mut sent, mut admitted) = (0, 0);
    for sender in senders {
        let (checks, admitted_before) = sender.await.expect("no panic");
        let rest = checks.join_all().await.into_iter().filter(|is_allowed| *is_allowed).count();
        sent += total;
        admitted += admitted_before + rest as u64;
    }
    (sent, admitted)
}

/// Returns the time between two arrivals of a Poisson process with one arrival in a unit of time.
fn random_gap(random: &mut Random) -> f64 {
    const STEPS: u64 = 1 << 32;
    -((random.below(STEPS) as f64 + 0.5) / STEPS as f64).ln()
}
