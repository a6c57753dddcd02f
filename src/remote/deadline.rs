//! The deadline of a call to the store.

use std::{pin::Pin, time::Duration};

use tokio::time::Instant;

use crate::{
    decision::StoreReply,
    error::{Effect, Error, ErrorKind},
    runtime::{SchedulingDelay, TIMER_RESOLUTION, TimeLimit, runtime_with_timer},
    store::{Answer, Request, Store},
    telemetry,
};

/// The time by which the store must answer a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    at: TimeLimit,
    limit: Duration,
}

impl Deadline {
    /// Creates the deadline of a call that starts now and waits at most `limit`. Returns
    /// `None` outside of a tokio runtime with timers.
    pub(super) fn new(limit: Duration) -> Option<Self> {
        runtime_with_timer()?;
        let wait = limit.max(2 * TIMER_RESOLUTION) - TIMER_RESOLUTION;
        Some(Self { at: TimeLimit::after(wait), limit })
    }

    /// Returns the deadline of a call that starts now and waits as long as this one.
    pub(super) fn again(self) -> Option<Self> {
        Self::new(self.limit)
    }

    pub(super) fn time(self) -> Instant {
        self.at.time()
    }

    /// Returns the time at which half of the wait has passed.
    pub(super) fn half(self) -> Instant {
        let time = self.time();
        time.checked_sub(self.limit / 2).unwrap_or(time)
    }
}

/// Sends `request`, with the deadline if there is one.
pub(super) fn send(store: &dyn Store, request: Request<'_>, deadline: Option<Deadline>) -> Answer {
    store.call(request, deadline.map(|deadline| deadline.time().into_std()))
}

/// Waits for the answer until the deadline.
pub(super) async fn wait(
    answer: &mut Answer,
    deadline: Option<Deadline>,
    delay: Option<&SchedulingDelay>,
) -> Result<StoreReply, Error> {
    let Some(Deadline { at, limit }) = deadline else { return answer.await };
    let reply = wait_until(answer, at, limit, delay).await;
    if reply.is_err() && Instant::now() >= at.time() {
        telemetry::deadline_missed();
    }
    reply
}

/// Waits for the answer until a time that is about `limit` after the request, and measures the scheduling
/// delay if the answer takes long.
///
/// A store that [keeps deadlines](crate::store::Traits::keeps_deadlines) fails by itself, and its error says
/// whether the request was sent. It has the only timer of the call, measures with it, and `delay` is `None`. For
/// other stores a timer here ends the call, and the effect of the request is [unknown](Effect::Unknown).
pub(super) async fn wait_until(
    answer: &mut Answer,
    at: TimeLimit,
    limit: Duration,
    delay: Option<&SchedulingDelay>,
) -> Result<StoreReply, Error> {
    let Some(delay) = delay else { return answer.await };
    let reply = at.wait_measured(Pin::new(answer), delay).await;
    reply.unwrap_or_else(|_| Err(missed(limit).with_effect(Effect::Unknown)))
}

#[cold]
fn missed(limit: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the store did not answer within {limit:?}"))
}
