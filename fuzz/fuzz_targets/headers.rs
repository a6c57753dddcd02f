//! The headers of any accepted policy name and quota are structured fields with the types of draft 11,
//! and `Retry-After` is not before the end of `t`.
#![no_main]

use std::{
    convert::Infallible,
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{Request, Response};
use libfuzzer_sys::fuzz_target;
use plimsoll::{
    Algorithm, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule, by, layer::Headers,
    memory::MemoryConfig,
};
use sfv::{BareItem, List, ListEntry, Parser};
use tower::{Layer, Service, service_fn};

fuzz_target!(|input: (&str, u64, u64, u8, u64, Vec<u8>)| {
    let (name, limit, micros, algorithm, cost, key) = input;
    let algorithm = match Algorithm::EACH[usize::from(algorithm) % Algorithm::EACH.len()] {
        Algorithm::SlidingBuckets(_) => Algorithm::SlidingBuckets(7),
        Algorithm::TokenBucket { .. } => Algorithm::TokenBucket { burst: limit },
        other => other,
    };
    let window = Duration::from_micros(micros);
    let Ok(quota) = Quota::new(limit, window, algorithm) else { return };
    let Ok(policy) = Policy::new(name, quota) else { return };
    let rule = Rule::new(policy, by::constant(key.as_slice())).cost(move |_| cost);
    let inner = service_fn(|_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(String::new())))
    });
    let headers = Headers::default().partition_secret(7);
    let limiter = Limiter::new(MemoryStore::new(MemoryConfig::default().max_keys(1)));
    let mut service = RateLimitLayer::new(limiter, rule).headers(headers).layer(inner);
    for _ in 0..3 {
        let mut now = Context::from_waker(Waker::noop());
        let mut future = Box::pin(service.call(Request::new(())));
        let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut now) else { panic!("it waits") };
        let field = |name: &str| {
            let value = response.headers().get(name).expect("a header");
            Parser::new(value.as_bytes()).parse::<List>().expect("a structured field")
        };
        let integer = |list: &List, parameter: &str| {
            let [ListEntry::Item(item)] = list.as_slice() else { panic!("one member") };
            assert!(matches!(&item.bare_item, BareItem::String(text) if text.as_str() == name));
            match item.params.get(parameter) {
                Some(BareItem::Integer(number)) => i64::from(*number),
                other => panic!("{parameter} is {other:?}"),
            }
        };
        let (policy, standing) = (field("ratelimit-policy"), field("ratelimit"));
        assert!(integer(&policy, "q") >= 0 && integer(&policy, "w") >= 1);
        assert!(integer(&standing, "r") >= 0 && integer(&standing, "t") >= 1);
        if let Some(retry_after) = response.headers().get("retry-after") {
            let seconds: i64 = retry_after.to_str().unwrap().parse().unwrap();
            assert!(seconds >= integer(&standing, "t"));
        }
        assert_eq!(response.status() == 403, cost > quota.capacity());
    }
});
