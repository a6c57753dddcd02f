//! A process that leases.

use std::{
    env,
    fs::File,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use plimsoll::{
    Decision, Limiter, Policy, RedisStore, Resilience, redis::RedisConfig, store::Source,
};
use plimsoll_testing::{
    algorithms::each_quota, policy, role::end_of_input, seed::Random, servers::PATIENCE,
};
use rustix::time::{ClockId, clock_gettime};
use tokio::{task::JoinSet, time::sleep};

pub(crate) const URL: &str = "PLIMSOLL_LEASES_URL";
pub(crate) const FILE: &str = "PLIMSOLL_LEASES_FILE";

/// Returns a quota of each algorithm with a window of a second.
pub(crate) fn quotas() -> impl Iterator<Item = String> {
    each_quota("30000/s", 20, 9_000).into_iter().map(|(quota, _)| format!("{quota} leased(100ms)"))
}

const TASKS: u64 = 8;

/// The bytes of a record: the number of the quota, the stamps before and after, the units.
pub(crate) const RECORD: usize = 4 * 8;

/// The clock that all processes share, in microseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// Checks until the standard input ends, and writes each use to a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role: another test starts it"]
async fn role() {
    let url = env::var(URL).expect("a role");
    let file = env::var(FILE).expect("a role");
    let config = RedisConfig::url(&url).connect_timeout(PATIENCE).response_timeout(PATIENCE);
    let store = RedisStore::connect_with(config).await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::default().without_fallback());
    let uses = Arc::new(File::create(file).expect("a file"));
    let from_stock = Arc::new(AtomicU64::new(0));
    println!("started");
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let random = Random(u64::from(std::process::id()) << 8 | task);
        let (limiter, uses) = (limiter.clone(), Arc::clone(&uses));
        tasks.spawn(check(limiter, random, uses, Arc::clone(&from_stock)));
    }
    end_of_input().await;
    tasks.shutdown().await;
    let _ = limiter.close().await;
    println!("from stock {}", from_stock.load(Relaxed));
}

async fn check(limiter: Limiter, mut random: Random, uses: Arc<File>, from_stock: Arc<AtomicU64>) {
    let policies: Vec<Policy> =
        (0..).zip(quotas()).map(|(number, quota)| policy(&format!("q{number}"), &quota)).collect();
    loop {
        for _ in 0..4 {
            // The first quota is charged twice as often as each of the others.
            let number = random.below(policies.len() as u64 + 1).saturating_sub(1);
            let cost = 1 + random.below(19);
            let charge = policies[number as usize].charge("everybody", cost);
            let before = now();
            let decision = limiter.check(charge).await;
            let after = now();
            // Without a fallback, a check of which Redis says nothing is an error.
            if let Ok(decision @ Decision::Allowed(_)) = decision {
                let record = [number, before, after, cost].map(u64::to_le_bytes).concat();
                (&*uses).write_all(&record).expect("written");
                from_stock.fetch_add(u64::from(decision.source() == Source::Leased), Relaxed);
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
}
