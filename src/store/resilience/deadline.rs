//! The deadline of a call to the store.

use std::time::Duration;

use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use crate::{
    decision::StoreReply,
    error::{Effect, Error, ErrorKind},
    store::{Answer, Request, Store},
    telemetry,
};

/// The longest delay between the time for which a timer is set and the time at which it fires.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// The wait in place of one that exceeds the range of the clock: about 30 years.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The time by which the store must answer a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    limit: Duration,
}

impl Deadline {
    /// Creates the deadline of a call that starts at `start` and waits at most `limit`. Returns
    /// `None` outside of a tokio runtime, where there is no timer.
    pub(super) fn new(start: Instant, limit: Duration) -> Option<Self> {
        Handle::try_current().ok()?;
        let wait = limit.max(2 * TIMER_RESOLUTION) - TIMER_RESOLUTION;
        Some(Self { at: saturating_add(start, wait), limit })
    }
}

/// Returns the time `duration` after `start`, or a time in the far future if there is no such time.
pub(super) fn saturating_add(start: Instant, duration: Duration) -> Instant {
    start.checked_add(duration).unwrap_or_else(|| start + FAR_FUTURE)
}

/// Sends `request`, with the deadline if there is one.
pub(super) fn send(store: &dyn Store, request: Request<'_>, deadline: Option<Deadline>) -> Answer {
    match deadline {
        Some(deadline) => store.call_by(request, deadline.at.into_std()),
        None => store.call(request),
    }
}

/// Waits for the answer until the deadline.
///
/// A store that implements [`Store::call_by`] fails by itself before the deadline, and its error
/// says whether the request was sent. For other stores this timer ends the call, and the effect of
/// the request is [unknown](Effect::Unknown).
pub(super) async fn wait(answer: Answer, deadline: Option<Deadline>) -> Result<StoreReply, Error> {
    let Some(deadline) = deadline else { return answer.await };
    let reply = timeout_at(deadline.at, answer).await.unwrap_or_else(|_| {
        let message = format!("the store did not answer within {:?}", deadline.limit);
        Err(Error::new(ErrorKind::Unavailable, message).with_effect(Effect::Unknown))
    });
    if reply.is_err() && Instant::now() >= deadline.at {
        telemetry::deadline_missed();
    }
    reply
}
