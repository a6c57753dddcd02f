//! Limits over time.

use std::time::Duration;

use plimsoll::Algorithm;
use plimsoll_server::envoy::EnvoyOptions;
use plimsoll_testing::seed::Random;

use crate::support::{Says, Service};

const LIMIT: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: tokens
    rate_limit: { quota: 10/min token-bucket(2) }
  - key: ten
    rate_limit: { quota: 3/10s sliding-log }
";

async fn admits(service: &Service, descriptor: &str) -> bool {
    !matches!(service.says("shop", descriptor).await, Says::Over(..))
}

/// Returns the most requests that were admitted in any minute, of a client that always tries.
async fn most_in_a_minute(options: EnvoyOptions) -> usize {
    let service = Service::with(LIMIT, options);
    let (mut random, mut now, mut admitted) = (Random::new("any minute"), 0, Vec::<u64>::new());
    while now < 600_000 {
        let wait = random.below(800);
        service.clock.advance(Duration::from_millis(wait));
        now += wait;
        if admits(&service, "user=a").await {
            admitted.push(now);
        }
    }
    let in_minute =
        |end: &u64| admitted.iter().filter(|at| **at <= *end && **at + 60_000 > *end).count();
    admitted.iter().map(in_minute).max().unwrap()
}

#[tokio::test]
async fn the_default_never_admits_more_than_the_limit_in_any_minute() {
    assert_eq!(most_in_a_minute(EnvoyOptions::default()).await, 10);
    let fixed = EnvoyOptions { algorithm: Algorithm::FixedWindow, ..EnvoyOptions::default() };
    assert!(most_in_a_minute(fixed).await > 10);
}

#[tokio::test]
async fn a_fixed_window_begins_anew_at_its_edge() {
    let fixed = EnvoyOptions { algorithm: Algorithm::FixedWindow, ..EnvoyOptions::default() };
    let service = Service::with(LIMIT, fixed);
    // 1,700,000,000 s is 20 s after the edge of a minute.
    service.clock.advance(Duration::from_millis(39_000));
    for number in 0..12 {
        assert_eq!(admits(&service, "user=a").await, number < 10);
    }
    service.clock.advance(Duration::from_secs(1));
    for number in 0..12 {
        assert_eq!(admits(&service, "user=a").await, number < 10);
    }
}

#[tokio::test]
async fn under_fixed_windows_the_reset_is_the_edge_of_the_window() {
    let reset = async |service: &Service| {
        let asked = crate::support::request("shop", [crate::support::descriptor("user=a")]);
        let response = service.ask(asked).await.unwrap();
        response.statuses[0].duration_until_reset.map(|reset| reset.seconds)
    };
    for (algorithm, expected) in [
        // 40 s are left of the minute.
        (Algorithm::FixedWindow, [Some(40), Some(38)]),
        // The second request leaves a minute after it was made.
        (Algorithm::SlidingLog, [Some(60), Some(60)]),
    ] {
        let service = Service::with(LIMIT, EnvoyOptions { algorithm, ..EnvoyOptions::default() });
        let first = reset(&service).await;
        service.clock.advance(Duration::from_secs(2));
        assert_eq!([first, reset(&service).await], expected, "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_quota_has_any_window_and_algorithm() {
    let service = Service::new(LIMIT);
    assert!(admits(&service, "tokens=a").await && admits(&service, "tokens=a").await);
    assert!(!admits(&service, "tokens=a").await);
    service.clock.advance(Duration::from_secs(6));
    assert!(admits(&service, "tokens=a").await && !admits(&service, "tokens=a").await);
    for _ in 0..3 {
        assert!(admits(&service, "ten=a").await);
    }
    assert!(!admits(&service, "ten=a").await);
    service.clock.advance(Duration::from_micros(9_999_999));
    assert!(!admits(&service, "ten=a").await);
    service.clock.advance(Duration::from_micros(1));
    assert!(admits(&service, "ten=a").await);
}
