//! Requests of several hits, looks, reports and refunds.

use Says::{Ok, Over};
use envoy_types::pb::{
    envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::rate_limit_response::{
            Code,
            rate_limit::Unit::{Hour, Minute},
        },
        r#type::v3::RateLimitUnit,
    },
    google::protobuf::UInt64Value,
};
use plimsoll_server::envoy::{Decide, EnvoyOptions};

use crate::support::{Says, Service, descriptor, hits, negative, own_limit, request};

const LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: other
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: counting
    rate_limit: { unit: minute, requests_per_unit: 10 }
    count_denied: true
  - key: forgetting
    rate_limit: { unit: minute, requests_per_unit: 10 }
    count_denied: false
  - key: burst
    rate_limit: { quota: 10/min token-bucket(4) }
  - key: log
    rate_limit: { quota: 10/min sliding-log }
  - key: counter
    rate_limit: { quota: 10/min sliding-counter }
  - key: window
    rate_limit: { quota: 10/min fixed-window }
  - key: leased
    rate_limit: { quota: 10/min leased(1s) }
";

fn both_ways() -> [EnvoyOptions; 2] {
    [Decide::Together, Decide::Each]
        .map(|how| EnvoyOptions { decide: how, ..EnvoyOptions::default() })
}

#[tokio::test]
async fn the_hits_come_from_the_descriptor_or_else_from_the_request() {
    for options in both_ways() {
        let service = Service::with(LIMITS, options);
        let mut of_request = request("shop", [descriptor("user=a"), hits("other=a", 4)]);
        of_request.hits_addend = 3;
        let response = service.ask(of_request).await.unwrap();
        let says: Vec<_> = response.statuses.iter().map(Says::of).collect();
        assert_eq!(says, [Ok(10, Minute, 7), Ok(10, Minute, 6)]);
        let (code, says) = service.answer("shop", [hits("user=a", 8)]).await;
        assert_eq!((code, &*says), (Code::OverLimit, &[Over(10, Minute)][..]));
        // A denied request spends nothing, not even a part.
        let (_, says) = service.answer("shop", [hits("user=a", 7)]).await;
        assert_eq!(says, [Ok(10, Minute, 0)]);
        // More than can ever pass.
        for number in [11, u64::from(u32::MAX), u64::MAX] {
            let (_, says) = service.answer("shop", [hits("user=b", number)]).await;
            assert_eq!(says, [Over(10, Minute)], "{number}");
        }
    }
}

#[tokio::test]
async fn a_strict_look_spends_nothing_and_is_denied_once_nothing_is_left() {
    for options in both_ways() {
        let service = Service::with(LIMITS, EnvoyOptions { strict_looks: true, ..options });
        let look = async || service.answer("shop", [hits("user=a", 0)]).await.1[0];
        assert_eq!((look().await, look().await), (Ok(10, Minute, 10), Ok(10, Minute, 10)));
        service.answer("shop", [hits("user=a", 9)]).await;
        assert_eq!(look().await, Ok(10, Minute, 1));
        service.answer("shop", [hits("user=a", 1)]).await;
        assert_eq!(look().await, Over(10, Minute));
        let (code, says) = service.answer("shop", [hits("user=a", 0), descriptor("other=a")]).await;
        let left = if says[1] == Ok(10, Minute, 10) { 10 } else { 9 };
        assert_eq!(
            (code, &*says),
            (Code::OverLimit, &[Over(10, Minute), Ok(10, Minute, left)][..])
        );
    }
}

#[tokio::test]
async fn a_look_passes_while_no_more_hits_than_the_limit_count() {
    for options in both_ways() {
        let service = Service::with(LIMITS, options);
        let look = async |of: &str| service.answer("shop", [hits(of, 0)]).await.1[0];
        let spend = async |of: &str, number| service.answer("shop", [hits(of, number)]).await.0;
        // Under each algorithm, and with a lease.
        for (of, limit, unit) in [
            ("user=a", 10, Minute),
            ("burst=a", 4, Minute),
            ("log=a", 10, Minute),
            ("counter=a", 10, Minute),
            ("window=a", 10, Minute),
            ("leased=a", 10, Minute),
        ] {
            let ok =
                |left| if of == "burst=a" { Ok(10, unit, left) } else { Ok(limit, unit, left) };
            assert_eq!(look(of).await, ok(limit), "{of}");
            spend(of, u64::from(limit) - 1).await;
            assert_eq!(look(of).await, ok(1), "{of}");
            spend(of, 1).await;
            for _ in 0..3 {
                assert_eq!(look(of).await, ok(0), "{of}");
            }
            // Two looks need no more than one.
            let (code, _) = service.answer("shop", [hits(of, 0), hits(of, 0)]).await;
            assert_eq!(code, Code::Ok, "{of}");
            assert_eq!(spend(of, 1).await, Code::OverLimit, "{of}");
            assert_eq!(look(of).await, Over(10, unit), "{of}");
        }
        // A hit that is no report counts as well. Without it, the look would pass for ever.
        look("user=b").await;
        spend("user=b", 10).await;
        assert_eq!(look("user=b").await, Ok(10, Minute, 0));
        assert_eq!(service.says("shop", "user=b").await, Over(10, Minute));
        assert_eq!(look("user=b").await, Over(10, Minute));
        // Nothing is ever counted beyond this limit.
        look("forgetting=a").await;
        spend("forgetting=a", 10).await;
        assert_eq!(look("forgetting=a").await, Over(10, Minute));
    }
}

#[tokio::test]
async fn a_look_at_a_limit_that_the_request_brings_along_is_like_others() {
    for options in both_ways() {
        let service = Service::with(LIMITS, options);
        let own = |number| RateLimitDescriptor {
            hits_addend: Some(UInt64Value { value: number }),
            ..own_limit("any=a", 10, RateLimitUnit::Hour)
        };
        let ask = async |number| service.answer("shop", [own(number)]).await.1[0];
        assert_eq!(
            (ask(0).await, ask(10).await, ask(0).await),
            (Ok(10, Hour, 10), Ok(10, Hour, 0), Ok(10, Hour, 0))
        );
        assert_eq!((ask(3).await, ask(0).await), (Over(10, Hour), Over(10, Hour)));
    }
}

#[tokio::test]
async fn together_a_look_that_is_denied_charges_nothing() {
    let service = Service::new(LIMITS);
    service.answer("shop", [hits("user=a", 0)]).await;
    service.answer("shop", [hits("user=a", 11)]).await;
    service.answer("shop", [hits("user=a", 0), descriptor("other=a")]).await;
    assert_eq!(service.says("shop", "other=a").await, Ok(10, Minute, 9));
}

#[tokio::test]
async fn a_report_of_a_client_that_looks_counts_beyond_the_limit() {
    for options in both_ways() {
        let service = Service::with(LIMITS, options);
        let look = async |of: &str| service.answer("shop", [hits(of, 0)]).await.1[0];
        let report = async |of: &str, number| service.answer("shop", [hits(of, number)]).await.0;
        assert_eq!(look("user=a").await, Ok(10, Minute, 10));
        assert_eq!(report("user=a", 8).await, Code::Ok);
        assert_eq!(look("user=a").await, Ok(10, Minute, 2));
        // The work has used more than was left. It counts, so that the next one is denied.
        assert_eq!(report("user=a", 5).await, Code::OverLimit);
        assert_eq!(look("user=a").await, Over(10, Minute));
        // One hit of a request is no report.
        assert_eq!(service.says("shop", "user=b").await, Ok(10, Minute, 9));
        // The field says it without a look.
        assert_eq!(report("counting=a", 11).await, Code::OverLimit);
        assert_eq!(look("counting=a").await, Over(10, Minute));
        assert_eq!(look("forgetting=a").await, Ok(10, Minute, 10));
        assert_eq!(report("forgetting=a", 11).await, Code::OverLimit);
        assert_eq!(look("forgetting=a").await, Ok(10, Minute, 10));
    }
}

#[tokio::test]
async fn negative_hits_pass_and_change_nothing() {
    for options in both_ways() {
        let service = Service::with(LIMITS, options);
        let ask = async |descriptors: &[_]| service.answer("shop", descriptors.to_vec()).await;
        ask(&[hits("user=a", 9)]).await;
        assert_eq!(ask(&[negative("user=a", 4)]).await, (Code::Ok, vec![Says::Unlimited]));
        // The other descriptors of its request are charged.
        let both = [negative("user=a", 4), descriptor("user=a")];
        assert_eq!(ask(&both).await, (Code::Ok, vec![Says::Unlimited, Ok(10, Minute, 0)]));
        assert_eq!(ask(&both).await.0, Code::OverLimit);
    }
}
