//! The deadline of a call to the store.

use std::{pin::Pin, time::Duration};

use tokio::time::Instant;

use crate::{
    error::{Effect, Error, ErrorKind},
    runtime::{SchedulingDelay, TIMER_RESOLUTION, TimeLimit, runtime_with_timer},
    store::{Answer, Request, Store},
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

    /// Returns the rest of the wait.
    pub(super) fn rest(self) -> Duration {
        self.time().saturating_duration_since(Instant::now()) + TIMER_RESOLUTION
    }

    pub(super) fn has_passed(self) -> bool {
        Instant::now() >= self.time()
    }
}

/// Sends `request`. The answer is ready by the deadline, if there is one.
///
/// A store that [keeps deadlines](crate::store::Traits::keeps_deadlines) fails by itself, and its error says
/// whether the request was sent. It has the only timer of the call, measures with it, and `delay` is `None`. For
/// other stores a timer here ends the call, and the effect of the request is [unknown](Effect::Unknown).
pub(super) fn send(
    store: &dyn Store,
    request: Request<'_>,
    deadline: Option<Deadline>,
    delay: Option<&SchedulingDelay>,
) -> Answer {
    let answer = store.call(request, deadline.map(|deadline| deadline.time().into_std()));
    let (Some(Deadline { at, limit }), Some(delay)) = (deadline, delay) else { return answer };
    match answer.now() {
        Ok(reply) => Answer::ready(reply),
        Err(mut answer) => {
            let delay = delay.clone();
            Answer::pending(async move {
                let reply = at.wait_measured(Pin::new(&mut answer), &delay).await;
                reply.unwrap_or_else(|_| Err(missed(limit).with_effect(Effect::Unknown)))
            })
        }
    }
}

#[cold]
fn missed(limit: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the store did not answer within {limit:?}"))
}
