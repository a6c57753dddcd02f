//! Checks of a limiter: as many as possible, or at a steady rate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use plimsoll::{Limiter, Policy};
use plimsoll_testing::seed::Random;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

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
    let next = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for _ in 0..256 {
        let (limiter, policy, next) = (limiter.clone(), policy.clone(), Arc::clone(&next));
        running.spawn(async move {
            loop {
                let key = next.fetch_add(1, Relaxed);
                if key >= keys {
                    return;
                }
                let decision = limiter.check(policy.charge(key, 1)).await;
                assert!(decision.expect("the store answers").is_allowed());
            }
        });
    }
    running.join_all().await;
}

/// Checks keys at `rate` a second for `time`, evenly through all limiters, each of which stands for a
/// process. A check does not wait for the one before it. Returns the decisions that were made, and those
/// that admitted.
pub(crate) async fn steady(
    limiters: &[Limiter],
    policy: &Policy,
    rate: f64,
    time: Duration,
    key: impl Fn(&mut Random) -> u64 + Clone + Send + 'static,
) -> (u64, u64) {
    let counts = Arc::new([const { AtomicU64::new(0) }; 2]);
    let end = Instant::now() + time;
    let mut running = JoinSet::new();
    for (number, limiter) in limiters.iter().enumerate() {
        let (limiter, policy, key) = (limiter.clone(), policy.clone(), key.clone());
        let (counts, rate) = (Arc::clone(&counts), rate / limiters.len() as f64);
        running.spawn(async move {
            let mut random = Random(number as u64);
            let mut ticks = interval(Duration::from_millis(1));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let begin = Instant::now();
            let mut sent = 0;
            while Instant::now() < end {
                ticks.tick().await;
                let due = (begin.elapsed().as_secs_f64() * rate) as u64;
                for _ in sent..due {
                    let (limiter, policy, counts) =
                        (limiter.clone(), policy.clone(), Arc::clone(&counts));
                    let key = key(&mut random);
                    tokio::spawn(async move {
                        let decision = limiter.check(policy.charge(key, 1)).await;
                        let is_allowed = decision.is_ok_and(|it| it.is_allowed());
                        counts[0].fetch_add(1, Relaxed);
                        counts[1].fetch_add(u64::from(is_allowed), Relaxed);
                    });
                }
                sent = sent.max(due);
            }
        });
    }
    running.join_all().await;
    // The last checks end.
    sleep_until(end + Duration::from_millis(60)).await;
    (counts[0].load(Relaxed), counts[1].load(Relaxed))
}
