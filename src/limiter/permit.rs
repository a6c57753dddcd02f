//! Permits: units in flight, which are renewed until the permit is dropped, and then released.
//!
//! A permit of an embedded store is released where it is dropped. The permits of a remote store are released
//! by a task, which sends those that are dropped while it waits for the store in one request. It ends when
//! nothing is left to release. The keeper, another task, renews the permits that have reached half of their
//! expiry. It ends when there is none.
//!
//! A renewal charges the new unit, beyond the limit, and then releases the old one. So one unit too many is
//! counted between the two requests, and never one too few.

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    task::yield_now,
    time::{sleep, timeout},
};

use super::{
    permit_table::PermitId,
    releases::{MAX_DELAY, MAX_IN_FLIGHT, RETRY_INTERVAL, ReleaseBatch},
    state::LimiterState,
};
use crate::{
    decision::{Decision, Receipt, ReceiptLine, Source, StoreReply},
    error::{Effect, Error},
    policy::{Charge, Charges},
    runtime::runtime_with_timer,
    store::{Answer, Request},
};

/// A guard of the units that an admitted check holds under concurrency limits. The units are renewed until it
/// is dropped, and then released.
#[derive(Debug)]
#[must_use = "dropping a permit releases its units"]
pub(crate) struct Permit {
    limiter: Arc<LimiterState>,
    id: PermitId,
}

impl Permit {
    /// Creates the guard of the units of `receipt`, all of which are in flight.
    pub(super) fn new(limiter: &Arc<LimiterState>, receipt: Receipt) -> Self {
        let is_kept = limiter.permits.is_kept.load(Ordering::SeqCst);
        if !is_kept {
            limiter.permits.set_time();
        }
        let id = limiter.permits.insert(receipt);
        if !is_kept || !limiter.permits.is_kept.load(Ordering::SeqCst) {
            start_keeper(limiter);
        }
        Self { limiter: Arc::clone(limiter), id }
    }

    /// Returns the receipt of the units, which the caller refunds.
    pub(super) fn into_receipt(self) -> Option<Receipt> {
        // The drop that follows finds nothing to release.
        self.limiter.permits.remove(self.id)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(receipt) = self.limiter.permits.remove(self.id) {
            release(&self.limiter, receipt);
        }
    }
}

/// Releases the units of a receipt, all of which are in flight.
pub(super) fn release(limiter: &Arc<LimiterState>, receipt: Receipt) {
    if limiter.store.release_now(&receipt) {
        return;
    }
    if receipt.source() == Source::Fallback {
        // The fallback answers at once.
        drop(limiter.store.call(Request::Refund(&receipt)));
    } else if limiter.releases.push(receipt) {
        start_sending(limiter);
    }
}

/// Starts the task that sends releases, unless it runs or there is no runtime with timers. Then the units
/// are released with later ones, or expire.
fn start_sending(limiter: &Arc<LimiterState>) {
    let Some(runtime) = runtime_with_timer() else { return };
    if limiter.releases.begin() {
        runtime.spawn(send_releases(Sending(Arc::downgrade(limiter))));
    }
}

/// A guard of the task that sends releases. The task may be dropped with its runtime.
struct Sending(Weak<LimiterState>);

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(limiter) = self.0.upgrade() {
            limiter.releases.end();
        }
    }
}

async fn send_releases(mut sending: Sending) {
    let in_flight = Arc::new(AtomicUsize::new(0));
    while let Some(limiter) = sending.0.upgrade() {
        // Tasks that end at the same time, such as those of one batch of checks, release together.
        yield_now().await;
        let Some(batch) = limiter.releases.take() else {
            // The queue knows already that this task has ended.
            sending.0 = Weak::new();
            return;
        };
        let mut answer = limiter.store.call(Request::Refund(&batch.receipt));
        // A slow answer does not hold up the next batch, unless there are many.
        let is_one_of_many = in_flight.load(Ordering::Relaxed) >= MAX_IN_FLIGHT;
        let limit = if is_one_of_many { Duration::MAX } else { MAX_DELAY };
        match timeout(limit, &mut answer).await {
            Ok(reply) => {
                if !end_release(&limiter, batch, &reply) {
                    drop(limiter);
                    sleep(RETRY_INTERVAL).await;
                }
            }
            Err(_) => {
                let in_flight = Arc::clone(&in_flight);
                in_flight.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let reply = answer.await;
                    in_flight.fetch_sub(1, Ordering::Relaxed);
                    if !end_release(&limiter, batch, &reply) {
                        start_sending(&limiter);
                    }
                });
            }
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

/// Returns whether a refund that ended with this error can be sent again: the store could not answer, and has
/// refunded nothing.
pub(super) fn was_not_sent(error: &Error) -> bool {
    error.is_unavailable() && error.effect() == Effect::None
}

/// Sends all releases that wait, and returns the first error.
pub(super) async fn flush_releases(limiter: &LimiterState) -> Result<(), Error> {
    while let Some(batch) = limiter.releases.take() {
        let reply = limiter.store.call(Request::Refund(&batch.receipt)).await;
        end_release(limiter, batch, &reply);
        reply?;
    }
    Ok(())
}

/// Starts the keeper, unless it runs or there is no runtime with timers.
#[cold]
fn start_keeper(limiter: &Arc<LimiterState>) {
    let Some(runtime) = runtime_with_timer() else { return };
    if !limiter.permits.is_kept.swap(true, Ordering::SeqCst) {
        runtime.spawn(keep(Keeping(Arc::downgrade(limiter))));
    }
}

/// A guard of the keeper, which may be dropped with its runtime.
struct Keeping(Weak<LimiterState>);

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(limiter) = self.0.upgrade() {
            limiter.permits.is_kept.store(false, Ordering::SeqCst);
        }
    }
}

/// Renews permits until there is none, or until the limiter ends.
async fn keep(mut keeping: Keeping) {
    let Some(wakes) = keeping.0.upgrade().map(|it| Arc::clone(&it.permits.wakes_keeper)) else {
        return;
    };
    while let Some(limiter) = keeping.0.upgrade() {
        let Some(due) = limiter.permits.begin_round() else {
            // A permit that is added from here on starts another keeper. One that was added before is seen
            // now.
            limiter.permits.is_kept.store(false, Ordering::SeqCst);
            if limiter.permits.is_empty() || limiter.permits.is_kept.swap(true, Ordering::SeqCst) {
                keeping.0 = Weak::new();
                return;
            }
            continue;
        };
        renew_all(&limiter, due).await;
        if limiter.releases.begin() {
            // Units were released where there is no runtime.
            tokio::spawn(send_releases(Sending(Weak::clone(&keeping.0))));
        }
        let interval = limiter.permits.interval();
        drop(limiter);
        let _ = timeout(interval, wakes.notified()).await;
    }
}

/// The most renewals in flight.
const MAX_RENEWALS: usize = 16;

/// Renews permits, several at a time.
async fn renew_all(limiter: &Arc<LimiterState>, mut due: Vec<(PermitId, Vec<Charge<'static>>)>) {
    let mut in_flight = tokio::task::JoinSet::new();
    loop {
        while in_flight.len() < MAX_RENEWALS
            && let Some((id, charges)) = due.pop()
        {
            in_flight.spawn(renew(Arc::clone(limiter), id, charges));
        }
        if in_flight.join_next().await.is_none() {
            return;
        }
    }
}

/// Charges the units of a permit again, and then releases the old ones. If the store cannot answer, the next
/// round tries again.
async fn renew(limiter: Arc<LimiterState>, id: PermitId, charges: Vec<Charge<'static>>) {
    let renewed = limiter.force(&charges).await.ok().map(|reply| {
        let lines = charges.into_iter().zip(&reply.charges);
        let lines = lines.map(|(charge, reply)| ReceiptLine::new(charge, reply.units, reply.mark));
        Receipt::new(reply.time, reply.source, lines)
    });
    if let Some(receipt) = limiter.permits.end_renewal(id, renewed) {
        release(&limiter, receipt);
    }
}

/// Wraps the answer to a check that takes units in flight, so that they are released if the caller stops
/// waiting. Otherwise a client that hangs up would hold a unit until it expires.
pub(super) fn guard_answer(
    limiter: &Arc<LimiterState>,
    charges: &Charges<'_>,
    answer: Answer,
) -> Answer {
    if !charges.iter().any(|charge| charge.quota().is_concurrent()) {
        return answer;
    }
    let charges = charges.clone().into_owned();
    Answer::pending(AwaitedCheck { limiter: Arc::clone(limiter), charges, answer: Some(answer) })
}

/// A check that takes units in flight, and whose answer is awaited.
struct AwaitedCheck {
    limiter: Arc<LimiterState>,
    charges: Charges<'static>,
    /// `None` once it is there.
    answer: Option<Answer>,
}

impl Future for AwaitedCheck {
    type Output = Result<StoreReply, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.answer.as_mut().expect("polled after it was ready");
        let reply = ready!(Pin::new(answer).poll(cx));
        self.answer = None;
        Poll::Ready(reply)
    }
}

impl Drop for AwaitedCheck {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (limiter, mut charges) = (Arc::clone(&self.limiter), std::mem::take(&mut self.charges));
        runtime.spawn(async move {
            if let Ok(reply) = answer.await
                && let Ok(decision) = Decision::new(&mut charges, reply)
                && let Some(receipt) = decision.in_flight()
            {
                release(&limiter, receipt);
            }
        });
    }
}
