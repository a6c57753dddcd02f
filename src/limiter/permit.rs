//! Permits: units in flight, which are renewed until the permit is dropped, and then released.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

use super::{in_flight::PermitId, state::LimiterState};
use crate::{
    decision::{Decision, Receipt, Source, StoreReply},
    error::Error,
    policy::{Charge, Charges},
    quota::Quota,
    runtime::runtime_with_timer,
    store::Answer,
};

/// A guard of the units that an admitted check holds under concurrency limits. The units are renewed until it
/// is dropped, and then released.
#[derive(Debug)]
#[must_use = "dropping a permit releases its units"]
pub(crate) struct Permit {
    pub(super) limiter: Arc<LimiterState>,
    /// The place of the receipt. `None` if nothing is in flight.
    id: Option<PermitId>,
    /// The name of the only charge, if the memory store has the units: so its key is not hashed again.
    name: Option<u128>,
}

impl Permit {
    /// Creates the guard of the units of `receipt`, all of which are in flight. `name` is that of its only
    /// charge in the memory store.
    pub(super) fn new(limiter: &Arc<LimiterState>, receipt: Receipt, name: Option<u128>) -> Self {
        let id = limiter.units.hold(receipt);
        limiter.start_keeper();
        Self { limiter: Arc::clone(limiter), id: Some(id), name }
    }

    /// Creates a guard of nothing.
    pub(super) fn empty(limiter: &Arc<LimiterState>) -> Self {
        Self { limiter: Arc::clone(limiter), id: None, name: None }
    }

    /// Returns a copy of the receipt of the units, which is not used.
    pub(super) fn copy_receipt(&self) -> Receipt {
        self.id.and_then(|id| self.limiter.units.copy(id)).unwrap_or_else(Receipt::empty)
    }

    /// Returns the receipt of the units, which the caller refunds.
    pub(super) fn into_receipt(mut self) -> Option<Receipt> {
        self.limiter.units.end(self.id.take()?)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(receipt) = self.id.and_then(|id| self.limiter.units.end(id)) else { return };
        match (self.limiter.memory(), self.name, receipt.lines()) {
            (Some(store), Some(name), [line]) => {
                store.release_named(name, line.mark(), line.units());
            }
            _ => self.limiter.release(receipt),
        }
    }
}

/// The part of an expiry after which the answer to a check comes too late.
const LATE_PER_EXPIRY: u32 = 8;
/// The number of times that a check is made. Its last answer is never too late.
const MAX_CHECKS: u32 = 3;

/// Wraps the answer to a check that takes units in flight, so that they are released if the caller stops
/// waiting. Otherwise a client that hangs up would hold a unit until it expires.
pub(super) fn guard_answer(
    limiter: &Arc<LimiterState>,
    charges: &Charges<'_>,
    answer: Answer,
) -> Answer {
    let expiries = charges.iter().map(Charge::quota).filter(|quota| quota.is_concurrent());
    match expiries.map(Quota::window).min() {
        None => answer,
        Some(expiry) => Answer::pending(check_in_time(
            Arc::clone(limiter),
            charges.clone().into_owned(),
            expiry / LATE_PER_EXPIRY,
            answer,
        )),
    }
}

/// Waits for the answer to a check that takes units in flight. If it comes too late, the units are refunded, and the
/// check is made again: they may have expired, because the runtime of the caller was not polled.
async fn check_in_time(
    limiter: Arc<LimiterState>,
    charges: Charges<'static>,
    latest: Duration,
    mut answer: Answer,
) -> Result<StoreReply, Error> {
    for _ in 1..MAX_CHECKS {
        let asked = Instant::now();
        let reply = AwaitedCheck::new(&limiter, &charges, answer).await?;
        if asked.elapsed() <= latest || reply.source == Source::Fallback {
            return Ok(reply);
        }
        let decision = Decision::new(&mut charges.clone(), reply.clone())?;
        let Decision::Allowed(allowed) = decision else { return Ok(reply) };
        limiter.refund(&allowed.into_receipt()).await?;
        answer = limiter.acquire(&charges);
    }
    AwaitedCheck::new(&limiter, &charges, answer).await
}

/// A check that takes units in flight, and whose answer is awaited.
struct AwaitedCheck {
    limiter: Arc<LimiterState>,
    charges: Charges<'static>,
    /// The runtime of the answer. A task of it waits for the answer if the caller does not.
    runtime: Option<Handle>,
    /// `None` once it is there.
    answer: Option<Answer>,
}

impl AwaitedCheck {
    fn new(limiter: &Arc<LimiterState>, charges: &Charges<'static>, answer: Answer) -> Self {
        let (charges, runtime) = (charges.clone(), runtime_with_timer());
        Self { limiter: Arc::clone(limiter), charges, runtime, answer: Some(answer) }
    }
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
        let Some(runtime) = self.runtime.take() else { return };
        let (limiter, mut charges) = (Arc::clone(&self.limiter), std::mem::take(&mut self.charges));
        runtime.spawn(async move {
            if let Ok(reply) = answer.await
                && let Ok(decision) = Decision::new(&mut charges, reply)
                && let Some(receipt) = decision.in_flight()
            {
                limiter.release(receipt);
            }
        });
    }
}
