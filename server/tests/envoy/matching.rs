//! The limit of a descriptor.

use Says::{Free, Ok, Over, Unlimited};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit::{
    Day, Hour, Minute, Month, Second, Week, Year,
};
use plimsoll_server::envoy::{EnvoyConfig, EnvoyOptions};

use crate::support::{Says, Service};

const LEVELS: &str = "
domain: shop
descriptors:
  - key: tier
    value: gold
    descriptors:
      - key: op
        rate_limit: { unit: second, requests_per_unit: 5 }
      - key: op
        value: write
        rate_limit: { unit: second, requests_per_unit: 10 }
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 20 }
  - key: user
    value: vip
    rate_limit: { unit: minute, requests_per_unit: 30 }
  - key: user
    value: staff
  - key: export
    rate_limit: { unit: HOUR, requests_per_unit: 1 }
  - key: login
    rate_limit: { name: logins, unit: day, requests_per_unit: 1 }
  - key: both
    value: outer
    rate_limit: { unit: day, requests_per_unit: 15 }
    descriptors:
      - key: deep
        value: inner
        rate_limit: { unit: day, requests_per_unit: 25 }
  - key: open
    rate_limit: { unlimited: true }
  - key: banned
    rate_limit: { unit: minute, requests_per_unit: 0 }
  - key: weekly
    rate_limit: { unit: week, requests_per_unit: 7 }
  - key: monthly
    rate_limit: { unit: month, requests_per_unit: 31 }
  - key: yearly
    rate_limit: { unit: year, requests_per_unit: 365 }
";

#[tokio::test]
async fn each_entry_matches_at_its_level_and_the_last_one_has_the_limit() {
    let service = Service::new(LEVELS);
    for (descriptor, expected) in [
        // A level without a limit of its own, and a value that no level has.
        ("tier=gold", Free),
        ("tier=silver", Free),
        ("tier=silver op=read", Free),
        // The request is deeper than the limit, or less deep.
        ("user=vip op=read", Free),
        ("both=outer deep=other", Free),
        ("tier=gold op=read more=x", Free),
        // Key and value come before the key alone.
        ("tier=gold op=read", Ok(5, Second, 4)),
        ("tier=gold op=write", Ok(10, Second, 9)),
        ("user=alice", Ok(20, Minute, 19)),
        ("user=vip", Ok(30, Minute, 29)),
        // A descriptor without a limit exempts its value.
        ("user=staff", Free),
        ("user=", Ok(20, Minute, 19)),
        ("export=x", Ok(1, Hour, 0)),
        ("login=x", Ok(1, Day, 0)),
        ("both=outer", Ok(15, Day, 14)),
        ("both=outer deep=inner", Ok(25, Day, 24)),
        ("open=anything", Unlimited),
        ("banned=x", Over(0, Minute)),
        ("weekly=x", Ok(7, Week, 6)),
        ("monthly=x", Ok(31, Month, 30)),
        ("yearly=x", Ok(365, Year, 364)),
        ("", Free),
        ("unknown=x", Free),
        // Names are case-sensitive.
        ("USER=alice", Free),
    ] {
        assert_eq!(service.says("shop", descriptor).await, expected, "{descriptor:?}");
    }
    assert_eq!(service.says("other-domain", "user=alice").await, Free);
}

const PATTERNS: &str = "
domain: shop
descriptors:
  - key: path
    value: /api/*
    rate_limit: { unit: minute, requests_per_unit: 20 }
  - key: path
    value: /api/health
    rate_limit: { unit: minute, requests_per_unit: 99 }
  - key: path
    value: /api/v1/*
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: path
    rate_limit: { unit: minute, requests_per_unit: 3 }
  - key: file
    value: a*z
    rate_limit: { unit: minute, requests_per_unit: 21 }
  - key: route
    value: /a/*/b/*/c
    rate_limit: { unit: minute, requests_per_unit: 22 }
  - key: plain
    value: star
    rate_limit: { unit: minute, requests_per_unit: 23 }
  - key: outer
    value: x
    descriptors:
      - key: inner
        value: y*
        rate_limit: { unit: minute, requests_per_unit: 24 }
";

#[tokio::test]
async fn the_first_pattern_matches_after_the_exact_value_and_before_the_key() {
    let service = Service::new(PATTERNS);
    for (descriptor, expected) in [
        ("path=/api/x", Ok(20, Minute, 19)),
        // In the order of the file, although the second pattern is longer.
        ("path=/api/v1/x", Ok(20, Minute, 19)),
        ("path=/api/health", Ok(99, Minute, 98)),
        ("path=/other", Ok(3, Minute, 2)),
        ("file=abcz", Ok(21, Minute, 20)),
        ("file=az", Ok(21, Minute, 20)),
        ("file=abc", Free),
        ("file=bz", Free),
        ("route=/a/1/b/2/c", Ok(22, Minute, 21)),
        ("route=/a/1/c", Free),
        ("route=/a/1/b/2/d", Free),
        ("plain=stars", Free),
        ("outer=x inner=yes", Ok(24, Minute, 23)),
        ("outer=x inner=no", Free),
        ("outer=xx inner=yes", Free),
    ] {
        assert_eq!(service.says("shop", descriptor).await, expected, "{descriptor:?}");
    }
}

#[tokio::test]
async fn each_value_has_its_own_budget_unless_a_pattern_shares_it() {
    let service = Service::new(
        "
domain: shop
descriptors:
  - key: files
    value: files/*
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: files
    value: own/*
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: tenant
    value: t*
    share_threshold: true
    descriptors:
      - key: tenant
        value: x*
        rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: exact
    value: test1
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: exact
    value: test*
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 9 }
",
    );
    assert_eq!(service.says("shop", "files=files/a").await, Ok(3, Hour, 2));
    assert_eq!(service.says("shop", "files=files/b").await, Ok(3, Hour, 1));
    assert_eq!(service.says("shop", "files=own/a").await, Ok(3, Hour, 2));
    assert_eq!(service.says("shop", "files=own/b").await, Ok(3, Hour, 2));
    assert_eq!(service.says("shop", "files=files/c").await, Ok(3, Hour, 0));
    assert_eq!(service.says("shop", "files=files/d").await, Over(3, Hour));
    // The outer level shares, the inner one does not: keys of the same name count apart by their place.
    assert_eq!(service.says("shop", "tenant=t1 tenant=x1").await, Ok(3, Hour, 2));
    assert_eq!(service.says("shop", "tenant=t2 tenant=x1").await, Ok(3, Hour, 1));
    assert_eq!(service.says("shop", "tenant=t2 tenant=x2").await, Ok(3, Hour, 2));
    assert_eq!(service.says("shop", "exact=test1").await, Ok(3, Hour, 2));
    assert_eq!(service.says("shop", "exact=test2").await, Ok(9, Hour, 8));
    assert_eq!(service.says("shop", "exact=test3").await, Ok(9, Hour, 7));
}

#[tokio::test]
async fn values_that_are_numbers_or_words_of_yaml_are_texts() {
    let service = Service::new(
        "
domain: 42
descriptors:
  - key: port
    value: 0080
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: flag
    value: true
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: rate
    value: 0.50
    rate_limit: { unit: minute, requests_per_unit: 3 }
",
    );
    assert_eq!(service.says("42", "port=0080").await, Ok(1, Minute, 0));
    assert_eq!(service.says("42", "flag=true").await, Ok(2, Minute, 1));
    assert_eq!(service.says("42", "rate=0.50").await, Ok(3, Minute, 2));
}

#[tokio::test]
async fn the_files_of_a_domain_are_merged() {
    let texts = ["user", "path"].map(|key| {
        format!(
            "domain: shop\ndescriptors:\n  - key: {key}\n    rate_limit: {{ unit: hour, requests_per_unit: 5 }}"
        )
    });
    let texts = [("a.yaml", &*texts[0]), ("b.yaml", &*texts[1])];
    let config = EnvoyConfig::from_texts(texts, EnvoyOptions::default()).unwrap();
    let service = Service::of(config);
    assert_eq!(service.says("shop", "user=a").await, Ok(5, Hour, 4));
    assert_eq!(service.says("shop", "path=a").await, Ok(5, Hour, 4));
    // A descriptor cannot be in both.
    let twice = [texts[0], ("c.yaml", texts[0].1)];
    let error = EnvoyConfig::from_texts(twice, EnvoyOptions::default()).unwrap_err();
    assert!(error.to_string().contains("the descriptor `user` is there twice"), "{error}");
}
