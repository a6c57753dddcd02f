//! The hit rates of a fleet: exact sums over instances, hours and restarts.

use std::time::Duration;

use plimsoll::{Limiter, Policy};
use plimsoll_control::{HitMark, HitRate, Offenders, Overrides, OverridesConfig, Registry};
use plimsoll_testing::servers::Server;
use tokio::time::sleep;

use crate::{
    connect,
    cutter::{Cutter, POINTS, Point},
};

/// An instance that counts its decisions.
struct Counting {
    overrides: Overrides,
    offenders: Offenders,
    limiter: Limiter,
    policy: Policy,
}

impl Counting {
    async fn start(url: &str) -> Self {
        let overrides = connect(url, Registry::default()).await;
        let offenders = Offenders::new(10);
        overrides.publish(&offenders);
        let policy = Policy::new("api", "3/h").expect("a policy");
        Self { overrides, offenders, limiter: Limiter::in_memory(), policy }
    }

    /// Makes so many checks of a new key, of which three are admitted.
    fn check(&self, times: usize) {
        for _ in 0..times {
            let decision = self.limiter.check_now(self.policy.charge("alice", 1));
            self.offenders.record(&decision.expect("a decision"));
        }
    }

    async fn rate(&self) -> Option<HitRate> {
        let rates = self.overrides.hit_rates().await.expect("an answer");
        rates.policies.into_iter().find(|it| it.policy == "api")
    }

    /// Waits until the sums of all instances are these.
    async fn counts(&self, admitted: u64, denied: u64) -> HitRate {
        let mut last = None;
        for _ in 0..300 {
            last = self.rate().await;
            if let Some(rate) = last.clone()
                && (rate.hour.admitted, rate.hour.denied) == (admitted, denied)
            {
                return rate;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("{last:?}");
    }
}

fn hours(server: &Server) -> Vec<String> {
    server.ask("KEYS plim:{overrides}:hour:*")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sums_are_of_all_instances_and_survive_them() {
    let server = Server::start();
    let [first, second] =
        [Counting::start(&server.url()).await, Counting::start(&server.url()).await];
    assert_eq!(first.rate().await, None);
    first.check(5);
    second.check(4);
    let rate = first.counts(6, 3).await;
    assert_eq!(second.counts(6, 3).await.day, rate.day);
    assert_eq!(rate.hour.mark, Some(HitMark::TooStrict));
    assert_eq!((rate.week.admitted, rate.never_denies), (6, false));
    drop((first, second));
    // A new instance counts on from there.
    let third = Counting::start(&server.url()).await;
    third.check(4);
    third.counts(9, 4).await;
    sleep(Duration::from_secs(2)).await;
    third.counts(9, 4).await;
    // An hour expires after eight days.
    for key in hours(&server) {
        let left: i64 = server.ask(&format!("PTTL {key}"));
        assert!((691_000_000..=691_200_000).contains(&left), "{left}");
    }
}

/// A call that is cut and sent again adds its units once.
#[tokio::test(flavor = "multi_thread")]
async fn units_are_added_once_although_connections_are_cut() {
    let server = Server::start();
    let (cutter, url) = Cutter::start(server.port).await;
    let instance = Counting::start(&url).await;
    instance.check(3);
    instance.counts(3, 0).await;
    for (cuts, point) in POINTS.into_iter().enumerate() {
        instance.check(1);
        cutter.cut("\r\npoll\r\n", point);
        while point != Point::Idle && !cutter.has_cut() {
            sleep(Duration::from_millis(20)).await;
        }
        instance.counts(3, 1 + cuts as u64).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hours_of_the_past_count_in_their_spans() {
    let server = Server::start();
    let instance = Counting::start(&server.url()).await;
    instance.check(3);
    instance.counts(3, 0).await;
    let now = hours(&server)[0].rsplit_once(':').expect("an hour").1.parse::<u64>();
    let now = now.expect("a number");
    for (ago, policy, admitted, denied) in
        [(168, "idle", 2_000, 0), (5, "idle", 1, 0), (5, "api", 0, 1), (30, "api", 7, 0)]
    {
        let key = format!("plim:{{overrides}}:hour:{}", now - ago);
        let _: i64 = server.ask(&format!(
            "HSET {key} admitted:{policy} {admitted} denied:{policy} {denied} other:x 1"
        ));
    }
    let api = instance.rate().await.expect("it was charged");
    let sums = [api.hour, api.day, api.week].map(|it| (it.admitted, it.denied));
    assert_eq!(sums, [(3, 0), (3, 1), (10, 1)]);
    assert_eq!((api.hour.mark, api.day.mark), (None, Some(HitMark::TooStrict)));
    let rates = instance.overrides.hit_rates().await.expect("an answer").policies;
    let idle = rates.iter().find(|it| it.policy == "idle").expect("it was charged");
    assert!(idle.never_denies && !api.never_denies);
    assert_eq!((idle.week.admitted, idle.hour.share), (2_001, None));
    assert_eq!(idle.week.mark, Some(HitMark::ProtectsNothing));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_is_no_instance() {
    let server = Server::start();
    let config = OverridesConfig::new(server.url(), "plim").observer();
    let observer = Overrides::connect(config, Registry::default(), Limiter::in_memory()).await;
    let _observer = observer.expect("connected");
    let instance = Counting::start(&server.url()).await;
    assert_eq!(instance.overrides.fleet().await.instances.len(), 1);
}

#[tokio::test]
async fn without_redis_a_process_counts_for_itself() {
    let overrides = Overrides::in_memory(Registry::default(), Limiter::in_memory());
    let offenders = Offenders::new(10);
    overrides.publish(&offenders);
    let policy = Policy::new("api", "3/h").expect("a policy");
    let instance = Counting { overrides, offenders, limiter: Limiter::in_memory(), policy };
    instance.check(4);
    instance.counts(3, 1).await;
    let rates = instance.overrides.hit_rates().await.expect("an answer");
    assert!(rates.is_of_process);
}
