//! Values of headers: numbers, and waits in whole seconds.

use std::{str, time::Duration};

use http::HeaderValue;

use crate::{
    clock::micros_up,
    decision::{Denied, Standing},
    random,
};

/// Returns the `Retry-After` of a denial in seconds, without jitter. It is the wait rounded up, and
/// at least the effective window that `RateLimit` shows.
///
/// It is `None` if waiting does not help, or if the store named no wait.
pub(in crate::middleware) fn retry_after(denied: &Denied<'_>) -> Option<u64> {
    if denied.is_over_capacity() {
        return None;
    }
    let binding = denied.binding()?;
    let wait = whole_seconds(binding.wait_micros()?);
    if is_estimate(denied) {
        return Some(wait);
    }
    Some(wait.max(window_seconds(binding.standing())))
}

/// Returns whether the wait is an estimate: a unit in flight has to be released first. Clients that are
/// denied at the same time then need a jitter.
pub(in crate::middleware) fn is_estimate(denied: &Denied<'_>) -> bool {
    denied.binding().is_some_and(|binding| binding.charge().quota().is_concurrent())
}

/// Adds a random part of `jitter` to a wait of `seconds`.
///
/// `Retry-After` counts whole seconds, so `jitter` is rounded up to whole seconds.
pub(in crate::middleware) fn with_jitter(seconds: u64, jitter: Duration) -> u64 {
    let jitter = jitter.as_secs().saturating_add(u64::from(jitter.subsec_nanos() > 0));
    seconds.saturating_add(random::up_to(jitter))
}

/// Returns the effective window in whole seconds: the time in which the client can use no more
/// units than remain.
pub(super) fn window_seconds(standing: &Standing) -> u64 {
    (micros_up(standing.next_after) / 1_000_000).max(1)
}

/// Rounds microseconds up to whole seconds, at least 1.
pub(super) fn whole_seconds(micros: u64) -> u64 {
    micros.div_ceil(1_000_000).max(1)
}

/// Returns a number as a header value. Up to 999, it allocates nothing, and above it once, where [`HeaderValue::from`]
/// needs two allocations (`cargo bench --bench layer`).
pub(in crate::middleware) fn number(number: u64) -> HeaderValue {
    // The first digit that is no leading zero.
    let start = match number {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let place = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(3);
    let digits = DIGITS.get(place.saturating_add(start)..place.saturating_add(3));
    match digits.and_then(|digits| str::from_utf8(digits).ok()) {
        Some(digits) => HeaderValue::from_static(digits),
        None => HeaderValue::from_str(itoa::Buffer::new().format(number))
            .unwrap_or_else(|_| HeaderValue::from(number)),
    }
}

/// Parses a header value as a number.
pub(super) fn parse(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

/// Three digits for each number below 1000.
static DIGITS: [u8; 3_000] = {
    let mut digits = [0; 3_000];
    let mut number = 0;
    while number < 1_000 {
        digits[3 * number] = b'0' + (number / 100) as u8;
        digits[3 * number + 1] = b'0' + (number / 10 % 10) as u8;
        digits[3 * number + 2] = b'0' + (number % 10) as u8;
        number += 1;
    }
    digits
};
