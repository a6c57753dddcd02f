//! `Retry-After`, and the rounding of waits to whole seconds.

use std::time::Duration;

use crate::{
    decision::{Denied, Standing},
    random,
};

/// Returns the `Retry-After` of a denial in seconds, without jitter. It is the wait rounded up, and
/// at least the effective window that `RateLimit` shows.
///
/// It is `None` if waiting does not help, or if the store named no wait.
pub(in crate::middleware) fn seconds(denied: &Denied<'_>) -> Option<u64> {
    if denied.is_over_capacity() {
        return None;
    }
    let standing = denied.binding()?.standing();
    Some(whole_seconds(standing.retry_after?).max(window_seconds(standing)))
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
#[inline]
pub(super) fn window_seconds(standing: &Standing) -> u64 {
    (standing.next_after / 1_000_000).max(1)
}

/// Rounds microseconds up to whole seconds, at least 1.
#[inline]
pub(in crate::middleware) fn whole_seconds(micros: u64) -> u64 {
    micros.div_ceil(1_000_000).max(1)
}
