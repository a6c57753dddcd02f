//! Shadow mode and quota mode, of a limit and of the service.

use Says::{Free, Ok, Over};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, rate_limit::Unit::Minute,
};
use plimsoll_server::envoy::{Decide, EnvoyOptions};

use crate::support::{Says, Service};

const MODES: &str = "
domain: shop
descriptors:
  - key: live
    rate_limit: { unit: minute, requests_per_unit: 3 }
  - key: shadow
    rate_limit: { unit: minute, requests_per_unit: 2 }
    shadow_mode: true
  - key: banned
    rate_limit: { unit: minute, requests_per_unit: 0 }
    shadow_mode: true
  - key: one
    rate_limit: { unit: minute, requests_per_unit: 1 }
    quota_mode: true
  - key: two
    rate_limit: { unit: minute, requests_per_unit: 2 }
    quota_mode: true
  - key: dark
    rate_limit: { unit: minute, requests_per_unit: 1 }
    quota_mode: true
    shadow_mode: true
";

fn both_ways() -> [EnvoyOptions; 2] {
    [Decide::Together, Decide::Each]
        .map(|how| EnvoyOptions { decide: how, ..EnvoyOptions::default() })
}

#[tokio::test]
async fn a_shadow_counts_and_always_passes() {
    for options in both_ways() {
        let service = Service::with(MODES, options);
        for left in [1, 0, 0, 0] {
            assert_eq!(service.says("shop", "shadow=a").await, Ok(2, Minute, left));
        }
        assert_eq!(service.says("shop", "banned=a").await, Ok(0, Minute, 0));
        // A shadow beside a limit that denies: requests that are denied count for it too.
        for number in 1..=4 {
            let (code, says) = service.decide("shop", &["shadow=b", "live=b"]).await;
            let shadow = Ok(2, Minute, 2_u32.saturating_sub(number));
            let live = if number <= 3 { Ok(3, Minute, 3 - number) } else { Over(3, Minute) };
            assert_eq!((code == Code::OverLimit, &*says), (number > 3, &[shadow, live][..]));
        }
    }
}

#[tokio::test]
async fn quota_mode_denies_when_no_quota_is_left() {
    for options in both_ways() {
        let service = Service::with(MODES, options);
        let ask = async || service.decide("shop", &["one=a", "two=a"]).await;
        assert_eq!(ask().await, (Code::Ok, vec![Ok(1, Minute, 0), Ok(2, Minute, 1)]));
        assert_eq!(ask().await, (Code::Ok, vec![Over(1, Minute), Ok(2, Minute, 0)]));
        assert_eq!(ask().await, (Code::OverLimit, vec![Over(1, Minute), Over(2, Minute)]));
        // Alone it is like another limit.
        assert_eq!(service.says("shop", "one=b").await, Ok(1, Minute, 0));
        assert_eq!(service.says("shop", "one=b").await, Over(1, Minute));
        // A limit that must pass denies although a quota is left.
        for left in [2, 1, 0] {
            let (_, says) = service.decide("shop", &["live=c"]).await;
            assert_eq!(says, [Ok(3, Minute, left)]);
        }
        let (code, says) = service.decide("shop", &["live=c", "two=c"]).await;
        assert_eq!((code, says[0]), (Code::OverLimit, Over(3, Minute)));
        // A shadow in quota mode always passes, and so never are all quotas used up.
        for _ in 0..3 {
            assert_eq!(service.decide("shop", &["dark=a", "one=d"]).await.0, Code::Ok);
        }
    }
}

#[tokio::test]
async fn together_a_request_that_no_quota_admits_is_counted_by_its_other_limits() {
    let service = Service::new(MODES);
    assert_eq!(service.says("shop", "one=a").await, Ok(1, Minute, 0));
    let (code, says) = service.decide("shop", &["live=a", "one=a", "shadow=a"]).await;
    assert_eq!((code, says[1]), (Code::OverLimit, Over(1, Minute)));
    assert_eq!(service.says("shop", "live=a").await, Ok(3, Minute, 1));
    // While the live limit denies, no quota is spent.
    for _ in 0..2 {
        service.says("shop", "live=a").await;
    }
    let (code, says) = service.decide("shop", &["live=a", "two=a"]).await;
    assert_eq!((code, &*says), (Code::OverLimit, &[Over(3, Minute), Ok(2, Minute, 2)][..]));
}

#[tokio::test]
async fn the_service_can_be_a_shadow_or_in_quota_mode_as_a_whole() {
    let service =
        Service::with(MODES, EnvoyOptions { shadow_mode: true, ..EnvoyOptions::default() });
    for number in 1..=4 {
        let (code, says) = service.decide("shop", &["live=a"]).await;
        let live = if number <= 3 { Ok(3, Minute, 3 - number) } else { Over(3, Minute) };
        assert_eq!((code, &*says), (Code::Ok, &[live][..]));
    }
    for options in both_ways() {
        let service = Service::with(MODES, EnvoyOptions { quota_mode: true, ..options });
        for number in 1..=4 {
            let (code, _) = service.decide("shop", &["live=a"]).await;
            assert_eq!(code == Code::OverLimit, number > 3);
        }
        // A descriptor without a limit is a quota that is never used up.
        let (code, says) = service.decide("shop", &["live=a", "unknown=x"]).await;
        assert_eq!((code, &*says), (Code::Ok, &[Over(3, Minute), Free][..]));
    }
}
