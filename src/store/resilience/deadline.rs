//! The deadline of a call to the store.

use std::time::Duration;

use tokio::{runtime::Handle, time::Instant};

use crate::{
    decision::StoreReply,
    error::{Effect, Error, ErrorKind},
    store::{Answer, Request, Store, departure},
    telemetry,
};

/// A timer fires up to this much late.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// The time by which the store has to answer a call.
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
        Some(Self { at: start + wait, limit })
    }
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
/// The store itself fails by then if it supports [`Store::call_by`], and knows what it has done. The
/// timer here is for those that do not.
pub(super) async fn wait(answer: Answer, deadline: Option<Deadline>) -> Result<StoreReply, Error> {
    let Some(deadline) = deadline else { return answer.await };
    let limit = deadline.at.saturating_duration_since(Instant::now()) + TIMER_RESOLUTION;
    let reply = departure::within(limit, answer).await;
    if !matches!(reply, Ok(Ok(_))) && Instant::now() >= deadline.at {
        telemetry::deadline_missed();
    }
    reply.unwrap_or_else(|late| {
        let message = format!("the store did not answer within {:?}", deadline.limit);
        let effect = if late.unsent { Effect::None } else { Effect::Unknown };
        Err(Error::new(ErrorKind::Unavailable, message).with_effect(effect))
    })
}
