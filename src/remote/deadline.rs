//! The deadline of a call to the store.

use std::{pin::Pin, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::scheduling_delay::SchedulingDelay;
use crate::{
    decision::StoreReply,
    error::{Effect, Error, ErrorKind},
    runtime::{TimeLimit, runtime_with_timer},
    store::{Answer, Request, Store},
    telemetry,
};

/// The longest delay between the time for which a timer is set and the time at which it fires.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// The time after which a call that has no reply yet measures the scheduling delay.
const MEASURE_AFTER: Duration = Duration::from_millis(10);

/// The time by which the store must answer a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    measure_at: Instant,
    at: TimeLimit,
    limit: Duration,
}

impl Deadline {
    /// Creates the deadline of a call that starts now and waits at most `limit`. Returns
    /// `None` outside of a tokio runtime with timers.
    pub(super) fn new(limit: Duration) -> Option<Self> {
        runtime_with_timer()?;
        let wait = limit.max(2 * TIMER_RESOLUTION) - TIMER_RESOLUTION;
        let measure_at = Instant::now() + wait.min(MEASURE_AFTER);
        Some(Self { measure_at, at: TimeLimit::after(wait), limit })
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

/// Waits for the answer until the deadline, and measures the scheduling delay if the answer takes
/// long.
///
/// A store that [keeps the deadline](Answer::keeps_deadline) fails by itself, and its error says
/// whether the request was sent. For other stores a timer ends the call, and the effect of the
/// request is [unknown](Effect::Unknown).
pub(super) async fn wait(
    mut answer: Answer,
    deadline: Option<Deadline>,
    delay: &SchedulingDelay,
) -> Result<StoreReply, Error> {
    let Some(Deadline { measure_at, at, limit }) = deadline else { return answer.await };
    let quick = timeout_at(measure_at, &mut answer).await;
    delay.record_timer(measure_at);
    let reply = match quick {
        Ok(reply) => return reply,
        Err(_) if answer.keeps_deadline() => answer.await,
        Err(_) => at
            .wait(Pin::new(&mut answer))
            .await
            .unwrap_or_else(|_| Err(missed(limit).with_effect(Effect::Unknown))),
    };
    // Only a late process waits for longer than the deadline.
    delay.record_timer(at.time() + TIMER_RESOLUTION);
    if reply.is_err() && Instant::now() >= at.time() {
        telemetry::deadline_missed();
    }
    reply
}

/// Waits for the answer, and measures the scheduling delay if it takes long.
pub(super) async fn measured(
    mut answer: Answer,
    delay: SchedulingDelay,
) -> Result<StoreReply, Error> {
    let measure_at = Instant::now() + MEASURE_AFTER;
    let quick = timeout_at(measure_at, &mut answer).await;
    delay.record_timer(measure_at);
    match quick {
        Ok(reply) => reply,
        Err(_) => answer.await,
    }
}

#[cold]
fn missed(limit: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the store did not answer within {limit:?}"))
}
