//! The pause that the headers of an upstream service cause, beside an oracle of other parsers.
//!
//! The first byte chooses the status and the meaning of `X-RateLimit-Reset`. Each line is a header.
#![no_main]

use std::{
    collections::HashMap,
    convert::Infallible,
    future::ready,
    task::{Context, Poll, Waker},
    time::{Duration, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use plimsoll::{
    Limiter, Policy, Quota, Reset, Rule, by,
    client::{PaceError, PaceLayer},
};
use sfv::{BareItem, List, ListEntry, Parser};
use tower::{Layer, Service, service_fn};

const NAMES: [&str; 6] = [
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "date",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];
const MAX: u64 = 100_000;

thread_local! {
    static LIMITER: Limiter = Limiter::in_memory();
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, lines @ ..] = bytes else { return };
    let (failed, reset) = (choice & 1 == 1, (choice & 2 == 2).then_some(choice & 4 == 4));
    let mut answer = Response::new(String::new());
    *answer.status_mut() = if failed { 429 } else { 200 }.try_into().unwrap();
    for (name, line) in NAMES.iter().zip(lines.split(|byte| *byte == b'\n')) {
        if let Ok(value) = HeaderValue::from_bytes(line)
            && !line.is_empty()
        {
            answer.headers_mut().append(*name, value);
        }
    }
    let headers = answer.headers().clone();

    let policy = Policy::new("p", Quota::per_second(5)).unwrap();
    // A cost of 0 is always admitted, so only a pause can stop a call.
    let rule = Rule::new(policy, by::constant("k")).cost(|_| 0);
    let mut layer = PaceLayer::new(LIMITER.with(Limiter::clone), rule);
    layer = layer.max_pause(Duration::from_secs(MAX));
    layer = match reset {
        None => layer,
        Some(true) => layer.x_ratelimit(Reset::Epoch),
        Some(false) => layer.x_ratelimit(Reset::Seconds),
    };
    let service = move |_: Request<()>| ready(Ok::<Response<String>, Infallible>(answer.clone()));
    let mut client = layer.layer(service_fn(service));
    let mut call = || {
        let mut future = client.call(Request::new(()));
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.map(drop),
            Poll::Pending => panic!("it waits"),
        }
    };
    call().expect("the first call is made");
    let pause = match call() {
        Ok(()) => 0,
        Err(PaceError::Denied { retry_after: Some(wait), by_upstream: true, .. }) => {
            assert!(wait <= Duration::from_secs(MAX));
            // Less than a second has passed since the pause began.
            wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
        }
        Err(error) => panic!("{error}"),
    };

    let Some(expected) = oracle(&headers, failed, reset) else { return };
    assert_eq!(pause, expected.min(MAX), "{headers:?}");
});

/// Returns the pause in seconds, or `None` if it is not clear or depends on this machine's clock.
fn oracle(headers: &HeaderMap, failed: bool, reset: Option<bool>) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let digits = |name: &str| {
        let text = text(name).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
        (!text.is_empty()).then(|| text.parse().unwrap_or(u64::MAX))
    };
    let date = |name: &str| {
        let date = httpdate::parse_http_date(text(name)?).ok()?;
        Some(date.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
    };
    let mut pause = ratelimit(headers)?;
    if failed {
        pause = pause.max(match (digits("retry-after"), date("retry-after")) {
            (Some(seconds), _) => seconds,
            (None, Some(end)) => end.saturating_sub(date("date")?),
            (None, None) => 0,
        });
    }
    if let Some(epoch) = reset
        && digits("x-ratelimit-remaining") == Some(0)
        && let Some(end) = digits("x-ratelimit-reset")
    {
        pause = pause.max(if epoch { end.saturating_sub(date("date")?) } else { end });
    }
    Some(pause)
}

/// Returns the pause of `RateLimit`, or `None` if it has types that this crate ignores with the whole
/// field, or a Byte Sequence, which this crate does not decode.
fn ratelimit(headers: &HeaderMap) -> Option<u64> {
    let Some(field) = list(headers, "ratelimit")? else { return Some(0) };
    let policies: HashMap<String, Option<i64>> = list(headers, "ratelimit-policy")?
        .unwrap_or_default()
        .into_iter()
        .rev() // the first of two policies with one name
        .map(|(name, integers)| (name, integers.get("w").copied()))
        .collect();
    let spent = field.into_iter().filter(|(_, integers)| integers.get("r") == Some(&0));
    let windows = spent.filter_map(|(name, integers)| {
        integers.get("t").copied().or_else(|| *policies.get(&name)?)
    });
    Some(windows.filter_map(|seconds| u64::try_from(seconds).ok()).max().unwrap_or(0))
}

type Members = Vec<(String, HashMap<String, i64>)>;

/// Returns the members of a field: no list if it is missing or malformed.
fn list(headers: &HeaderMap, name: &str) -> Option<Option<Members>> {
    let Some(value) = headers.get(name) else { return Some(None) };
    let text = value.as_bytes();
    let unread = |byte: &u8| b"(:%".contains(byte);
    if text.iter().any(unread) || text.len() > 8 << 10 {
        return None;
    }
    let Ok(list) = Parser::new(text).parse::<List>() else { return Some(None) };
    if list.len() > 64 {
        return Some(None);
    }
    let mut members = Members::new();
    for entry in list {
        let ListEntry::Item(item) = entry else { return None };
        let name = match &item.bare_item {
            BareItem::String(name) => name.as_str(),
            BareItem::Token(name) => name.as_str(),
            // This crate ignores the whole field.
            _ => return Some(None),
        };
        let integers = item.params.iter().filter_map(|(key, value)| {
            Some((key.as_str().to_owned(), value.as_integer().map(i64::from)?))
        });
        members.push((name.to_owned(), integers.collect()));
    }
    Some(Some(members))
}
