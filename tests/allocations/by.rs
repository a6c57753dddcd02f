//! Finding a client allocates nothing.
#![cfg(feature = "axum")]

use std::{hint::black_box, net::SocketAddr};

use axum::extract::ConnectInfo;
use http::{HeaderValue, Request, request::Parts};
use plimsoll::{
    Policy, Quota,
    by::{self, And, ClientIp, Or},
    key::Identity,
    rule::{Rules, Tiers},
};
use plimsoll_testing::alone;
use stats_alloc::Region;

use crate::ALLOCATOR;

fn allocations(work: impl Fn()) -> usize {
    work();
    let region = Region::new(ALLOCATOR);
    for _ in 0..100 {
        work();
    }
    region.change().allocations
}

fn find(who: impl Fn(&Parts) -> Identity, parts: &Parts) -> usize {
    // The harness may allocate at the same time, but not each time.
    let once = || {
        allocations(|| {
            black_box(who(black_box(parts)));
        })
    };
    (0..5).map(|_| once()).min().unwrap_or(usize::MAX)
}

#[test]
fn none() {
    if !alone("by::none") {
        return;
    }
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.extensions.insert(ConnectInfo(SocketAddr::from(([10, 9, 0, 1], 443))));
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.195, 10.7.14.3, 10.8.0.22"),
        ("forwarded", "for=\"[2001:db8::1]:47\", for=10.7.14.3, for=10.8.0.22"),
        ("authorization", "Bearer a-token-longer-than-what-a-key-keeps-as-it-is-0123456789"),
        ("x-api-key", "free-0123456789"),
    ] {
        parts.headers.insert(name, HeaderValue::from_static(value));
    }
    let proxies: Vec<String> = (0..10).map(|n| format!("10.{n}.0.0/16")).collect();
    let xff = by::client_ip(ClientIp::x_forwarded_for(&proxies).unwrap());
    let forwarded = by::client_ip(ClientIp::forwarded(&proxies).unwrap());
    assert_eq!(find(&xff, &parts), 0);
    assert_eq!(find(&forwarded, &parts), 0);
    assert_eq!(find(by::peer_ip(), &parts), 0);
    assert_eq!(find(by::bearer_token().and(xff.clone()), &parts), 0);
    assert_eq!(find(by::header("x-none").or(by::header("x-api-key")), &parts), 0);
    let long = "a tenant whose name has 46 bytes, which is all";
    assert_eq!(long.len(), 46);
    let tuple = |_: &Parts| Identity::from((long, 42_i64, long.as_bytes(), [7_u8; 46]));
    assert_eq!(find(tuple, &parts), 0);
    let free = Policy::new("free", Quota::per_minute(10)).unwrap();
    let tiers = Tiers::new(free.clone()).tier("free", free);
    let tier = |parts: &Parts| {
        let known = |tier: &&str| parts.headers.get("x-api-key").is_some_and(|key| key == *tier);
        ["free", "paid"].into_iter().find(known)
    };
    let rules = Rules::new(tiers.rule(tier, by::constant("all")));
    let choosing = || {
        black_box(rules.charges(black_box(&parts)).unwrap());
    };
    assert_eq!((0..5).map(|_| allocations(choosing)).min(), Some(0));
}
