//! The task of the keeper that sends the releases of a remote store.
//!
//! It sends the units that are released while it waits for the store in one request.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{
    releases::{MAX_DELAY, MAX_IN_FLIGHT, RETRY_INTERVAL, ReleaseBatch},
    state::LimiterState,
};
use crate::{
    decision::StoreReply,
    error::{Effect, Error},
    runtime::runtime_with_timer,
    store::Request,
};

/// The longest time for which [`flush`] waits for batches in flight.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends all releases that wait, and waits for those that are in flight. Returns the first error.
pub(super) async fn flush(limiter: &LimiterState) -> Result<(), Error> {
    send_all(limiter).await?;
    if limiter.releases.in_flight() > 0 && runtime_with_timer().is_some() {
        let _ = timeout(FLUSH_TIMEOUT, limiter.releases.in_flight_have_ended()).await;
    }
    // A batch that was in flight may have been put back.
    send_all(limiter).await
}

async fn send_all(limiter: &LimiterState) -> Result<(), Error> {
    while let Some(batch) = limiter.releases.take() {
        let reply = limiter.store.call(Request::Refund(&batch.receipt)).await;
        end_release(limiter, batch, &reply);
        reply?;
    }
    Ok(())
}

/// Returns whether a refund that ended with this error can be sent again: the store could not answer, and has
/// refunded nothing.
pub(super) fn was_not_sent(error: &Error) -> bool {
    error.is_unavailable() && error.effect() == Effect::None
}

/// Sends releases until the limiter ends.
pub(super) async fn send_releases(limiter: Weak<LimiterState>, wakes: Arc<Notify>) {
    while let Some(state) = limiter.upgrade() {
        let Some(batch) = state.releases.take() else {
            drop(state);
            wakes.notified().await;
            continue;
        };
        let mut answer = state.store.call_in_background(Request::Refund(&batch.receipt));
        // A slow answer does not hold up the next batch, unless there are many.
        let is_one_of_many = state.releases.in_flight() > MAX_IN_FLIGHT;
        let limit = if is_one_of_many { Duration::MAX } else { MAX_DELAY };
        drop(state);
        let Ok(reply) = timeout(limit, &mut answer).await else {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let reply = answer.await;
                limiter.upgrade().map(|state| end_release(&state, batch, &reply))
            });
            continue;
        };
        let is_over = limiter.upgrade().is_none_or(|state| end_release(&state, batch, &reply));
        if !is_over {
            sleep(RETRY_INTERVAL).await;
        }
    }
}

/// Ends the request of a batch. Returns false if its lines have to be sent again.
///
/// Without an answer, the units may have been released. They are not released again, because by then another
/// request may have them.
fn end_release(
    limiter: &LimiterState,
    batch: ReleaseBatch,
    reply: &Result<StoreReply, Error>,
) -> bool {
    let is_over = !reply.as_ref().is_err_and(was_not_sent);
    if !is_over {
        limiter.releases.put_back(batch);
    }
    is_over
}
