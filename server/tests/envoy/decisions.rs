//! Decisions on several descriptors: together, or each by itself.

use Says::{Free, Ok, Over, Unlimited};
use envoy_types::pb::envoy::{
    service::ratelimit::v3::rate_limit_response::{
        Code,
        rate_limit::Unit::{Day, Hour, Minute},
    },
    r#type::v3::RateLimitUnit,
};
use plimsoll_server::envoy::{Decide, EnvoyOptions};

use crate::support::{Says, Service, own_limit};

const TWO: &str = "
domain: shop
descriptors:
  - key: wide
    rate_limit: { unit: minute, requests_per_unit: 20 }
  - key: narrow
    rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: open
    rate_limit: { unlimited: true }
  - key: banned
    rate_limit: { unit: minute, requests_per_unit: 0 }
";

fn each() -> EnvoyOptions {
    EnvoyOptions { decide: Decide::Each, ..EnvoyOptions::default() }
}

#[tokio::test]
async fn a_limit_admits_its_number_and_then_denies() {
    for options in [EnvoyOptions::default(), each()] {
        let service = Service::with(TWO, options);
        for number in 1..=20 {
            assert_eq!(service.says("shop", "wide=a").await, Ok(20, Minute, 20 - number));
        }
        for _ in 0..5 {
            assert_eq!(service.says("shop", "wide=a").await, Over(20, Minute));
        }
        assert_eq!(service.says("shop", "wide=b").await, Ok(20, Minute, 19));
    }
}

#[tokio::test]
async fn a_denied_request_does_not_drain_the_other_limits() {
    let service = Service::new(TWO);
    for number in 1..=15 {
        let (code, says) = service.decide("shop", &["wide=a", "narrow=a"]).await;
        if number <= 10 {
            assert_eq!(code, Code::Ok);
            assert_eq!(says, [Ok(20, Minute, 20 - number), Ok(10, Hour, 10 - number)]);
        } else {
            assert_eq!(code, Code::OverLimit);
            assert_eq!(says, [Ok(20, Minute, 10), Over(10, Hour)]);
        }
    }
}

#[tokio::test]
async fn by_choice_each_limit_is_counted_by_itself() {
    let service = Service::with(TWO, each());
    for number in 1..=15 {
        let (code, says) = service.decide("shop", &["wide=a", "narrow=a"]).await;
        let narrow = if number <= 10 { Ok(10, Hour, 10 - number) } else { Over(10, Hour) };
        assert_eq!(code == Code::OverLimit, number > 10);
        assert_eq!(says, [Ok(20, Minute, 20 - number), narrow]);
    }
}

#[tokio::test]
async fn lines_without_a_store_take_part() {
    for options in [EnvoyOptions::default(), each()] {
        let is_each = options == each();
        let service = Service::with(TWO, options);
        let (code, says) = service.decide("shop", &["unknown=x", "open=x", "wide=a"]).await;
        assert_eq!((code, &*says), (Code::Ok, &[Free, Unlimited, Ok(20, Minute, 19)][..]));
        let (code, says) = service.decide("shop", &["banned=x", "wide=a"]).await;
        let left = if is_each { 18 } else { 19 };
        assert_eq!((code, &*says), (Code::OverLimit, &[Over(0, Minute), Ok(20, Minute, left)][..]));
        assert_eq!(service.says("shop", "wide=a").await, Ok(20, Minute, left - 1));
    }
}

#[tokio::test]
async fn a_descriptor_that_is_there_twice_counts_twice() {
    let service = Service::new(TWO);
    let (_, says) = service.decide("shop", &["wide=a", "wide=a", "wide=b"]).await;
    assert_eq!(says, [Ok(20, Minute, 18), Ok(20, Minute, 18), Ok(20, Minute, 19)]);
}

const NAMES: &str = "
domain: shop
descriptors:
  - key: read
    rate_limit: { name: reads, unit: minute, requests_per_unit: 1 }
  - key: write
    rate_limit: { name: writes, unit: minute, requests_per_unit: 1 }
  - key: vip
    rate_limit: { replaces: [{ name: reads }], unit: minute, requests_per_unit: 2 }
  - key: staff
    rate_limit: { replaces: [{ name: reads }, { name: writes }], unlimited: true }
  - key: banned
    rate_limit: { name: ban, unit: minute, requests_per_unit: 0 }
  - key: pardon
    rate_limit: { replaces: [{ name: ban }], unit: minute, requests_per_unit: 2 }
";

#[tokio::test]
async fn a_limit_takes_the_place_of_those_that_it_replaces() {
    for options in [EnvoyOptions::default(), each()] {
        let service = Service::with(NAMES, options);
        for left in [1, 0] {
            let (code, says) = service.decide("shop", &["read=a", "vip=a"]).await;
            assert_eq!((code, &*says), (Code::Ok, &[Free, Ok(2, Minute, left)][..]));
        }
        let (code, says) = service.decide("shop", &["read=a", "vip=a"]).await;
        assert_eq!((code, &*says), (Code::OverLimit, &[Free, Over(2, Minute)][..]));
        // The replaced limit was not counted.
        assert_eq!(service.says("shop", "read=a").await, Ok(1, Minute, 0));
        let (code, says) = service.decide("shop", &["staff=a", "read=a", "write=a"]).await;
        assert_eq!((code, &*says), (Code::Ok, &[Unlimited, Free, Free][..]));
        let (code, says) = service.decide("shop", &["banned=a", "pardon=a"]).await;
        assert_eq!((code, &*says), (Code::Ok, &[Free, Ok(2, Minute, 1)][..]));
        assert_eq!(service.says("shop", "banned=a").await, Over(0, Minute));
    }
}

#[tokio::test]
async fn a_request_can_bring_its_limit_along() {
    let service = Service::new(TWO);
    let own = |requests, unit| own_limit("wide=a path=x", requests, unit);
    let ask = async |descriptor| service.answer("shop", [descriptor]).await.1[0];
    assert_eq!(ask(own(10, RateLimitUnit::Day)).await, Ok(10, Day, 9));
    assert_eq!(ask(own(10, RateLimitUnit::Day)).await, Ok(10, Day, 8));
    // Another number of requests in the same unit keeps what the entries have spent. Another unit is counted by
    // itself.
    assert_eq!(ask(own(42, RateLimitUnit::Day)).await, Ok(42, Day, 39));
    assert_eq!(ask(own(42, RateLimitUnit::Hour)).await, Ok(42, Hour, 41));
    assert_eq!(ask(own(10, RateLimitUnit::Day)).await, Ok(10, Day, 6));
    let other = own_limit("wide=b", 42, RateLimitUnit::Hour);
    assert_eq!(ask(other).await, Ok(42, Hour, 41));
    // The limit of the configuration has a budget of its own.
    assert_eq!(service.says("shop", "wide=b").await, Ok(20, Minute, 19));
    assert_eq!(ask(own_limit("wide=c", 0, RateLimitUnit::Day)).await, Over(0, Day));
    let (_, says) = service.answer("unknown", [own(10, RateLimitUnit::Day)]).await;
    assert_eq!(says, [Free]);
    let request = crate::support::request("shop", [own(1, RateLimitUnit::Unknown)]);
    let status = service.ask(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn limits_of_requests_with_other_units_do_not_lift_each_other() {
    for options in [EnvoyOptions::default(), each()] {
        let service = Service::with(TWO, options);
        let mut admitted = 0;
        for _ in 0..8 {
            for (requests, unit) in [(3, RateLimitUnit::Hour), (2, RateLimitUnit::Second)] {
                let (code, _) = service.answer("shop", [own_limit("wide=a", requests, unit)]).await;
                admitted += usize::from(code == Code::Ok && unit == RateLimitUnit::Hour);
            }
        }
        assert_eq!(admitted, 3);
    }
}

#[tokio::test]
async fn several_limits_that_a_request_brings_along_for_the_same_entries_all_hold() {
    for options in [EnvoyOptions::default(), each()] {
        for turned in [false, true] {
            let service = Service::with(TWO, options.clone());
            let ask = async |one, other, entries: &str| {
                let mut both =
                    [one, other].map(|it| own_limit(entries, it, RateLimitUnit::Hour)).to_vec();
                if turned {
                    both.reverse();
                }
                service.answer("shop", both).await.0
            };
            // Both descriptors are counted in one budget.
            assert_eq!(ask(1_000, 2, "wide=a").await, Code::Ok);
            assert_eq!(ask(1_000, 2, "wide=a").await, Code::OverLimit);
            assert_eq!(ask(5, 5, "wide=b").await, Code::Ok);
            assert_eq!(ask(5, 5, "wide=b").await, Code::Ok);
            assert_eq!(ask(5, 5, "wide=b").await, Code::OverLimit);
        }
    }
}
