//! The keys that are limited now, summed over the processes of a service.

use std::time::Duration;

use plimsoll::{Limiter, MemoryStore, Policy, clock::ManualClock, memory::MemoryConfig};
use plimsoll_control::{
    OffenderOrder::{Denied, Spent},
    Offenders, Overrides, OverridesConfig, Registry,
};
use plimsoll_testing::servers::Server;
use tokio::time::{Instant, sleep};

/// Counts a check of this key.
fn check(offenders: &Offenders, limiter: &Limiter, policy: &Policy, key: u64) {
    offenders.record(&limiter.check_now(policy.charge(key, 1)).expect("an embedded store"));
}

fn limiter(clock: &ManualClock) -> Limiter {
    let config = MemoryConfig::default().max_keys(1_000).clock(clock.clone());
    Limiter::new(MemoryStore::new(config))
}

#[test]
fn counts_are_halved_each_minute_and_forgotten() {
    let clock = ManualClock::at(60_000_000);
    let limiter = limiter(&clock);
    let offenders = Offenders::with_clock(10, clock.clone());
    let policy = Policy::new("api", "1/h").expect("a policy");
    (0..9).for_each(|_| check(&offenders, &limiter, &policy, 42));
    let denied = || offenders.top("api", 1, Denied).first().map(|it| it.denied);
    assert_eq!(denied(), Some(8));
    let revealing = offenders.clone().show_keys();
    assert_eq!(revealing.clone().top("api", 1, Denied)[0].key, "42");
    assert!(offenders.top("api", 1, Denied)[0].key.starts_with('#'));
    clock.advance(Duration::from_secs(60));
    assert_eq!(denied(), Some(4));
    check(&offenders, &limiter, &policy, 42);
    assert_eq!(denied(), Some(5));
    clock.advance(Duration::from_secs(10 * 60));
    assert_eq!(denied(), None);
    assert!(offenders.top("api", 1, Denied).is_empty());
}

#[test]
fn a_spender_is_found_by_samples_and_its_key_is_not_shown() {
    let clock = ManualClock::at(60_000_000);
    let limiter = limiter(&clock);
    let offenders = Offenders::with_clock(10, clock);
    let policy = Policy::new("api", "1000000/h").expect("a policy");
    for request in 0..100_000_u64 {
        check(&offenders, &limiter, &policy, if request % 4 == 0 { request % 64 } else { 424_242 });
    }
    let top = offenders.top("api", 1, Spent).remove(0);
    assert!(top.key.starts_with('#') && !top.key.contains("424242"), "{top:?}");
    // The standard deviation of the estimate is below 2%.
    assert!((60_000..90_000).contains(&top.spent), "{top:?}");
    assert_eq!(top.denied, 0);
}

#[tokio::test]
async fn many_viewers_read_the_reports_once_a_second() {
    let server = Server::start();
    let clock = ManualClock::at(60_000_000);
    let overrides = Overrides::connect(
        OverridesConfig::new(server.url(), "plim"),
        Registry::default(),
        limiter(&clock),
    )
    .await;
    let offenders = Offenders::with_clock(10, clock);
    offenders.share(&overrides.expect("an answer"));
    let viewers: Vec<_> = (0..100)
        .map(|_| {
            let offenders = offenders.clone();
            tokio::spawn(async move { offenders.top_of_fleet("api", 10, Denied).await })
        })
        .collect();
    let start = Instant::now();
    for viewer in viewers {
        assert_eq!(viewer.await.expect("it ends").expect("an answer"), []);
    }
    let calls = server.info("commandstats", "cmdstat_zrangebyscore");
    let calls = calls.trim_start_matches("calls=").split(',').next().map(str::parse::<u64>);
    let (calls, most) = (calls.expect("a count").expect("a number"), start.elapsed().as_secs() + 2);
    assert!((1..=most).contains(&calls), "{calls} reads in {:?}", start.elapsed());
}

#[tokio::test]
async fn the_processes_of_a_service_sum_their_counts() {
    let server = Server::start();
    let clock = ManualClock::at(60_000_000);
    let limiter = limiter(&clock);
    let policy = Policy::new("api", "1/h").expect("a policy");
    let mut processes = Vec::new();
    for denials in 1..=3 {
        let registry = Registry::default();
        let overrides = Overrides::connect(
            OverridesConfig::new(server.url(), "plim"),
            registry,
            limiter.clone(),
        )
        .await;
        let offenders = Offenders::with_clock(10, clock.clone());
        offenders.share(&overrides.expect("an answer"));
        let _ = limiter.check_now(policy.charge(424_242, 1));
        (0..denials).for_each(|_| check(&offenders, &limiter, &policy, 424_242));
        processes.push(offenders);
    }
    let denied = async |offenders: &Offenders| {
        let top = offenders.top_of_fleet("api", 10, Denied).await.expect("an answer");
        top.iter().map(|it| it.denied).collect::<Vec<_>>()
    };
    // A process knows its own counts at once, and the counts of the others by their reports.
    assert_eq!(denied(&processes[2]).await, [3]);
    let start = Instant::now();
    for offenders in &processes {
        while denied(offenders).await != [6] {
            assert!(start.elapsed() < Duration::from_secs(30));
            sleep(Duration::from_millis(100)).await;
        }
    }
    let reports: redis::Value = server.ask("HGETALL plim:{offenders}:reports");
    assert!(!format!("{reports:?}").contains("424242"), "{reports:?}");
    server.assert_all_keys_expire();
}
