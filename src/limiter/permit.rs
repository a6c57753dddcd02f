//! Permits: units in flight, which are renewed until the permit is dropped, and then released.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

use super::{Limiter, in_flight::PermitId, state::LimiterState};
use crate::{
    decision::{Decision, Receipt, Source},
    policy::Charge,
    quota::Quota,
    remote::{Answered, Call, Step},
    runtime::runtime_with_timer,
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
        let id = limiter.units.hold(receipt);
        limiter.start_keeper();
        Self { limiter: Arc::clone(limiter), id }
    }

    /// Returns the newest receipt of the units, which the caller refunds.
    pub(super) fn into_receipt(self) -> Option<Receipt> {
        self.limiter.units.end(self.id)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(receipt) = self.limiter.units.end(self.id) {
            self.limiter.release(receipt);
        }
    }
}

/// The part of an expiry after which the answer to a check comes too late.
const LATE_PER_EXPIRY: u32 = 8;
/// The number of times that a check is made. Its last answer is never too late.
const MAX_CHECKS: u32 = 3;

impl Limiter {
    /// Wraps a check that takes units in flight, so that they are released if the caller stops waiting.
    /// Otherwise a client that hangs up would hold a unit until it expires.
    pub(super) fn guard<'p>(&self, call: Call<'p>) -> Call<'p> {
        let quotas = call.charges().iter().map(Charge::quota);
        match quotas.filter(|quota| quota.is_concurrent()).map(Quota::window).min() {
            None => call,
            Some(expiry) => {
                let latest = expiry / LATE_PER_EXPIRY;
                Call::boxed(check_in_time(self.clone(), call.into_owned(), latest))
            }
        }
    }
}

/// Waits for a check that takes units in flight. If its reply comes too late, the units are refunded, and the
/// check is made again: they may have expired, because the runtime of the caller was not polled.
async fn check_in_time(
    limiter: Limiter,
    mut call: Call<'static>,
    latest: Duration,
) -> Answered<'static> {
    let mut checks = 1;
    loop {
        let asked = Instant::now();
        let runtime = runtime_with_timer();
        let awaited = AwaitedCheck { limiter: limiter.clone(), runtime, call: Some(call) };
        let (mut charges, reply) = awaited.await;
        let Ok(reply) = reply else { return (charges, reply) };
        if checks == MAX_CHECKS || asked.elapsed() <= latest || reply.source == Source::Fallback {
            return (charges, Ok(reply));
        }
        let receipt = match Decision::new(&mut charges.clone(), reply.clone()) {
            Ok(Decision::Allowed(allowed)) => allowed.into_receipt(),
            Ok(Decision::Denied(_)) => return (charges, Ok(reply)),
            Err(error) => return (charges, Err(error)),
        };
        if let Err(error) = limiter.refund(&receipt).await {
            return (charges, Err(error));
        }
        match limiter.0.store.acquire(&mut charges, None) {
            Step::Decided(reply) => return (charges, reply),
            Step::Waits(again) => call = again,
        }
        checks += 1;
    }
}

/// A check that takes units in flight, and that waits for the store.
struct AwaitedCheck {
    limiter: Limiter,
    /// The runtime of the call. A task of it waits for the reply if the caller does not.
    runtime: Option<Handle>,
    /// `None` once it has ended.
    call: Option<Call<'static>>,
}

impl Future for AwaitedCheck {
    type Output = Answered<'static>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answered<'static>> {
        let call = self.call.as_mut().expect("polled after it was ready");
        let answered = ready!(Pin::new(call).poll(cx));
        self.call = None;
        Poll::Ready(answered)
    }
}

impl Drop for AwaitedCheck {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let Some(runtime) = self.runtime.take() else { return };
        let limiter = self.limiter.clone();
        runtime.spawn(async move {
            if let (mut charges, Ok(reply)) = call.await
                && let Ok(decision) = Decision::new(&mut charges, reply)
                && let Some(receipt) = decision.in_flight()
            {
                limiter.0.release(receipt);
            }
        });
    }
}
