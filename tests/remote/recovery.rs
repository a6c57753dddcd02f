//! Instances that get no requests after an outage of a real server.

use std::time::Duration;

use futures_util::future::join_all;
use plimsoll::{
    Limiter, RedisStore, Resilience,
    store::{BreakerStatus, Source},
};
use plimsoll_testing::{calm::on_a_calm_machine, policy, servers::Server};

const INSTANCES: u32 = 2;
const LIMIT: u64 = 5;

/// Six seconds after the outage, two idle instances admit one limit together and not a limit each or
/// a share each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_instances_share_the_limit_again() {
    let _alone = crate::faults::ALONE.lock().await;
    // A check that a late process does not send in time is decided by this instance.
    on_a_calm_machine(async || {
        let mut server = Server::start();
        let mut limiters = Vec::new();
        for _ in 0..INSTANCES {
            let store = RedisStore::connect(&server.url()).await.expect("a store");
            limiters
                .push(Limiter::with_resilience(store, Resilience::default().instances(INSTANCES)));
        }
        let policy = policy("p", &format!("{LIMIT}/h"));
        server.kill();
        for limiter in &limiters {
            for _ in 0..20 {
                let check = limiter.check(policy.charge("during the outage", 0)).await;
                assert_eq!(check.expect("it falls back").source(), Source::Fallback);
            }
            let breaker = limiter.status().breaker.expect("a breaker");
            assert!(matches!(breaker, BreakerStatus::Open { .. }), "{breaker:?}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.run();
        tokio::time::sleep(Duration::from_secs(6)).await;

        // One check after the other, and all at once.
        let mut admitted = 0;
        for _ in 0..2 * LIMIT {
            for limiter in &limiters {
                let decision =
                    limiter.check(policy.charge("one by one", 1)).await.expect("decided");
                admitted += u64::from(decision.is_allowed());
            }
        }
        if admitted != LIMIT {
            return Err(format!("{admitted} of {LIMIT} units admitted, one by one"));
        }
        let checks = limiters.iter().flat_map(|limiter| {
            (0..2 * LIMIT).map(|_| limiter.check(policy.charge("all at once", 1)))
        });
        let decisions = join_all(checks).await;
        let admitted =
            decisions.iter().filter(|it| it.as_ref().expect("decided").is_allowed()).count();
        match admitted as u64 == LIMIT {
            true => Ok(()),
            false => Err(format!("{admitted} of {LIMIT} units admitted, all at once")),
        }
    })
    .await;
}
