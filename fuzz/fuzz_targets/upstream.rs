//! The pause that the headers of an upstream service cause, beside an oracle of other parsers.
//!
//! The first byte chooses the status. Each line is a header.
#![no_main]

use std::{
    collections::HashMap,
    convert::Infallible,
    future::ready,
    task::{Context, Poll, Waker},
    time::{Duration, Instant, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use plimsoll::{Limiter, Policy, Quota, Rule, by};
use plimsoll_pace::{PaceError, PaceLayer};
use sfv::{BareItem, Dictionary, List, ListEntry, Parser};
use tower::{Layer, Service, service_fn};

const NAMES: [&str; 12] = [
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "date",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "retry-after-ms",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
];
/// The headers with the units that are left, and with the time until there are more.
const PAIRS: [(&str, &str); 4] = [
    ("ratelimit-remaining", "ratelimit-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset-after"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
];
const MAX: f64 = 100_000.0;

thread_local! {
    static LIMITER: Limiter = Limiter::in_memory();
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, lines @ ..] = bytes else { return };
    let status = [200, 429, 403, 503][usize::from(choice & 3)];
    let mut answer = Response::new(String::new());
    *answer.status_mut() = status.try_into().unwrap();
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
    let layer = PaceLayer::new(LIMITER.with(Limiter::clone), rule);
    let layer = layer.max_pause(Duration::from_secs_f64(MAX));
    let service = move |_: Request<()>| ready(Ok::<Response<String>, Infallible>(answer.clone()));
    let mut client = layer.layer(service_fn(service));
    let mut call = || {
        let mut future = client.call(Request::new(()));
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.map(drop),
            Poll::Pending => panic!("it waits"),
        }
    };
    let begun = Instant::now();
    call().expect("the first call is made");
    let pause = match call() {
        Ok(()) => 0.0,
        Err(PaceError::Denied { retry_after: Some(wait), by_upstream: true, .. }) => {
            wait.as_secs_f64()
        }
        Err(error) => panic!("{error}"),
    };
    assert!(pause <= MAX);

    let Some(expected) = oracle(&headers, status) else { return };
    let expected = expected.min(MAX);
    let passed = begun.elapsed().as_secs_f64();
    let is_near = pause <= expected + 1e-3 && pause > expected - passed - 1e-3;
    assert!(is_near, "{pause} s instead of {expected} s: {headers:?}");
});

/// Returns the pause in seconds, or `None` if it is not clear or depends on this machine's clock.
fn oracle(headers: &HeaderMap, status: u16) -> Option<f64> {
    let mut pause = ratelimit(headers)? as f64;
    if status >= 400 {
        if let Some(text) = text(headers, "retry-after") {
            pause = pause.max(time(headers, text, true)?);
        }
        if let Some(text) = text(headers, "retry-after-ms") {
            // A time with a unit, or an epoch, in this header is not clear.
            let value = plain(text).filter(|value| *value < 1e12);
            pause = pause.max(value.or_else(|| unreadable(text))? / 1e3);
        }
    }
    if pause < 5e-10 {
        pause = pause.max(draft7(headers, status == 429)?);
        for (remaining, reset) in PAIRS {
            let Some(reset) = text(headers, reset) else { continue };
            // Lists of different lengths leave a time without its number of units.
            let parts = |text: &str| text.split(',').count();
            if text(headers, remaining).is_some_and(|text| parts(text) != parts(reset)) {
                return None;
            }
            let spent = match text(headers, remaining) {
                Some(text) => match plain(text) {
                    Some(units) => units < 1.0,
                    None => unreadable(text).map(|_| status == 429)?,
                },
                None => status == 429,
            };
            if spent {
                pause = pause.max(time(headers, reset, false)?);
            }
        }
    }
    let denied = status == 429 || status == 503 && headers.contains_key("retry-after");
    Some(if pause < 5e-10 && denied { 1.0 } else { pause })
}

/// Returns the pause of `RateLimit: limit=9, remaining=0, reset=8`, or `None` if it is not clear.
fn draft7(headers: &HeaderMap, denied: bool) -> Option<f64> {
    let names = |text: &&str| text.contains("remaining") || text.contains("reset");
    let Some(value) = text(headers, "ratelimit").filter(names) else {
        return Some(0.0);
    };
    let fields = Parser::new(value).parse::<Dictionary>().ok()?;
    let integer = |name: &str| match fields.get(name) {
        None => Some(None),
        Some(ListEntry::Item(item)) if item.params.is_empty() => {
            let number = i64::from(item.bare_item.as_integer()?);
            u64::try_from(number).ok().map(Some)
        }
        Some(_) => None,
    };
    // A repeated key, and a comma in a String, are not clear.
    if value.split(',').count() != fields.len() || fields.is_empty() {
        return None;
    }
    let spent = integer("remaining")?.map_or(denied, |units| units == 0);
    let reset = integer("reset")?.unwrap_or(0);
    // An epoch depends on the date.
    Some(if spent { reset as f64 } else { 0.0 }).filter(|_| reset < 1_000_000_000)
}

/// Returns the one value of a header.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Returns the wait in seconds, or `None` if it is not clear.
fn time(headers: &HeaderMap, text: &str, rounds_up: bool) -> Option<f64> {
    let date = |text: &str| {
        let date = httpdate::parse_http_date(text).ok()?;
        Some(date.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
    };
    let now = headers.get("date").and_then(|value| date(value.to_str().ok()?));
    if let Some(end) = date(text) {
        return Some((end - now?).max(0.0));
    }
    match plain(text) {
        Some(value) if value >= 1e12 => Some((value / 1e3 - now?).max(0.0)),
        Some(value) if value >= 1e9 => Some((value - now?).max(0.0)),
        Some(value) if rounds_up => Some(value.ceil()),
        Some(value) => Some(value),
        None => unreadable(text),
    }
}

/// Returns a number of digits with at most one dot.
fn plain(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    text.parse().ok()
}

/// Returns 0 for a text without digits, which is no time. Lists and times with units are not clear.
fn unreadable(text: &str) -> Option<f64> {
    text.bytes().all(|byte| !byte.is_ascii_digit()).then_some(0.0)
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
    if field.iter().any(|(_, integers)| integers.contains_key("r") && integers.contains_key("a")) {
        return None;
    }
    let is_spent = |integers: &HashMap<String, i64>| {
        integers.get("r").or_else(|| integers.get("a")) == Some(&0)
    };
    let spent = field.into_iter().filter(|(_, integers)| is_spent(integers));
    let windows = spent.filter_map(|(name, integers)| {
        let window = integers.get("t").or_else(|| integers.get("w")).copied();
        window.or_else(|| *policies.get(&name)?)
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
