//! Cases of `test/integration`, `test/limiter` and `test/redis` of envoyproxy/ratelimit: the hits of requests, and their
//! metrics.

use Says::{Free, Ok, Over};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code,
    rate_limit::Unit::{Day, Hour, Minute, Second},
};
use plimsoll_server::envoy::{Decide, EnvoyConfig, EnvoyOptions};

use crate::{
    metrics::{assert_has, measured, measured_with},
    support::{Says, Service, hits},
};

const BASIC: &str = "
domain: basic
descriptors:
  - key: key1
    rate_limit: { unit: second, requests_per_unit: 50 }
";

const ANOTHER: &str = "
domain: another
descriptors:
  - key: key2
    rate_limit: { unit: minute, requests_per_unit: 20 }
  - key: key3
    rate_limit: { unit: hour, requests_per_unit: 10 }
";

/// Returns the number of hits of a limit in a metric. `key` is the labels of its descriptors.
fn count(text: &str, metric: &str, domain: &str, key: &str) -> u64 {
    let line =
        format!("ratelimit_service_rate_limit_{metric}{{domain=\"{domain}\",key1=\"{key}\"}} ");
    let value = text.lines().find_map(|it| it.strip_prefix(&*line));
    value.unwrap_or_else(|| panic!("{line}\n{text}")).parse().unwrap()
}

#[test]
fn requests_of_two_domains_are_decided_and_counted() {
    for how in [Decide::Together, Decide::Each] {
        let service = || {
            let texts = [("basic.yaml", BASIC), ("another.yaml", ANOTHER)];
            let options = EnvoyOptions { decide: how, ..EnvoyOptions::default() };
            Service::of(EnvoyConfig::from_texts(texts, options).unwrap())
        };
        let text = measured_with(service, async |service| {
            assert_eq!(service.says("foo", "hello=world").await, Free);
            assert_eq!(service.says("basic", "key1=foo").await, Ok(50, Second, 49));
            for number in 1..=25 {
                let says =
                    if number <= 20 { Ok(20, Minute, 20 - number) } else { Over(20, Minute) };
                assert_eq!(service.says("another", "key2=a").await, says);
            }
            for number in 1..=15 {
                let decided = service.decide("another", &["key2=b", "key3=b"]).await;
                let charged = if how == Decide::Each { number } else { number.min(10) };
                let (code, key3) = match number {
                    1..=10 => (Code::Ok, Ok(10, Hour, 10 - number)),
                    _ => (Code::OverLimit, Over(10, Hour)),
                };
                assert_eq!(decided, (code, vec![Ok(20, Minute, 20 - charged), key3]));
            }
        });
        for (domain, key, total, over) in
            [("basic", "key1", 1, 0), ("another", "key2", 40, 5), ("another", "key3", 15, 5)]
        {
            let counted = ["total_hits", "over_limit"].map(|it| count(&text, it, domain, key));
            assert_eq!(counted, [total, over], "{how:?} {key}");
        }
    }
}

/// Returns the hits that a request adds to the total and to those over, near and within a limit, of which `before`
/// hits are used.
fn added(limit: u32, before: u64, number: u64) -> [u64; 4] {
    let limits = format!(
        "domain: shop\ndescriptors:\n  - key: key4\n    rate_limit: {{ unit: hour, requests_per_unit: {limit} }}\n"
    );
    let counted = |all: &[u64]| {
        let text = measured(&limits, async |service| {
            for number in all {
                service.answer("shop", [hits("key4=value4", *number)]).await;
            }
        });
        ["total_hits", "over_limit", "near_limit", "within_limit"]
            .map(|metric| count(&text, metric, "shop", "key4"))
    };
    let (first, all) = (counted(&[before]), counted(&[before, number]));
    std::array::from_fn(|index| all[index] - first[index])
}

#[test]
fn hits_are_over_near_or_within_a_limit() {
    for (limit, before, number, expected) in [
        // Far from the limit, near it, and above it.
        (15, 10, 1, [1, 0, 0, 1]),
        (15, 12, 1, [1, 0, 1, 1]),
        (15, 15, 1, [1, 1, 0, 0]),
        // Several hits: none, some and all of them are near.
        (20, 2, 3, [3, 0, 0, 3]),
        (8, 5, 2, [2, 0, 1, 2]),
        (20, 16, 3, [3, 0, 3, 3]),
        (10, 10, 3, [3, 3, 0, 0]),
        // Some of them are above. None is admitted, so that all are over the limit. In envoyproxy/ratelimit, two are
        // over it and the others near it.
        (20, 19, 3, [3, 3, 0, 0]),
        (20, 15, 7, [7, 7, 0, 0]),
    ] {
        assert_eq!(added(limit, before, number), expected, "{number} after {before} of {limit}");
    }
}

const NESTED: &str = "
domain: shop
descriptors:
  - key: key2
    descriptors:
      - key: subkey2
        rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: key3
    rate_limit: { unit: hour, requests_per_unit: 10 }
    descriptors:
      - key: subkey3
        rate_limit: { unit: day, requests_per_unit: 10 }
";

#[test]
fn two_limits_that_are_used_up_deny_with_their_own_hits() {
    for (key3, subkey3) in [(0, 1), (1, 2)] {
        let text = measured(NESTED, async |service| {
            let ask = async |one, other| service.answer("shop", [one, other]).await;
            let sub = "key2=a subkey2=b";
            // A level without a limit does not deny.
            assert_eq!(ask(hits("key2=a", 0), hits(sub, 10)).await.0, Code::Ok);
            let decided = ask(hits("key2=a", 0), hits(sub, 1)).await;
            assert_eq!(decided, (Code::OverLimit, vec![Free, Over(10, Minute)]));
            let sub = "key3=a subkey3=b";
            assert_eq!(ask(hits("key3=a", 10), hits(sub, 10)).await.0, Code::Ok);
            let decided = ask(hits("key3=a", key3), hits(sub, subkey3)).await;
            // A look passes while no more hits than the limit count.
            let looked = if key3 == 0 { Ok(10, Hour, 0) } else { Over(10, Hour) };
            assert_eq!(decided, (Code::OverLimit, vec![looked, Over(10, Day)]));
        });
        let of = |metric, key: &str| count(&text, metric, "shop", key);
        for (key, over) in
            [("key2\",key2=\"subkey2", 1), ("key3", key3), ("key3\",key2=\"subkey3", subkey3)]
        {
            // A look counts no hits.
            let counted = ["total_hits", "over_limit", "within_limit"].map(|it| of(it, key));
            assert_eq!(counted, [10 + over, over, 10], "{key}");
        }
    }
}

#[test]
fn hits_that_another_limit_denies_are_in_the_total_alone() {
    let limits = "
domain: shop
descriptors:
  - key: key4
    rate_limit: { unit: hour, requests_per_unit: 15 }
  - key: key5
    rate_limit: { unit: hour, requests_per_unit: 14 }
";
    let text = measured(limits, async |service| {
        let ask = async |number| {
            service.answer("shop", [hits("key4=a", number), hits("key5=a", number)]).await
        };
        ask(10).await;
        assert_eq!(ask(1).await, (Code::Ok, vec![Ok(15, Hour, 4), Ok(14, Hour, 3)]));
        assert_eq!(ask(2).await, (Code::Ok, vec![Ok(15, Hour, 2), Ok(14, Hour, 1)]));
        // The second limit denies, and the first stays as it is.
        assert_eq!(ask(2).await, (Code::OverLimit, vec![Ok(15, Hour, 2), Over(14, Hour)]));
    });
    for (metric, key4, key5) in [
        ("total_hits", 15, 15),
        ("over_limit", 0, 2),
        ("near_limit", 1, 2),
        ("within_limit", 13, 13),
    ] {
        assert_eq!(["key4", "key5"].map(|key| count(&text, metric, "shop", key)), [key4, key5]);
    }
    assert_has(&text, "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 4");
}
