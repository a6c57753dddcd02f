//! Units in flight, which are renewed until they are dropped, and then released; and the checks that take them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

use super::{Limiter, in_flight::HeldId};
use crate::{
    decision::{Checked, Decision, Receipt, Source},
    remote::{Answered, Progress, WaitingCheck},
    runtime::runtime_with_timer,
};

/// The units that an admitted check holds under concurrency limits. They are renewed until this guard is
/// dropped, and then released.
#[derive(Debug)]
#[must_use = "dropping it releases the units"]
pub(crate) struct HeldUnits {
    limiter: Limiter,
    id: HeldId,
}

impl HeldUnits {
    /// Returns the newest receipt of the units, which the caller refunds.
    pub(super) fn into_receipt(self) -> Option<Arc<Receipt>> {
        self.limiter.0.units.end(self.id)
    }
}

impl Drop for HeldUnits {
    fn drop(&mut self) {
        if let Some(receipt) = self.limiter.0.units.end(self.id) {
            self.limiter.release(&receipt);
        }
    }
}

/// The number of times that a check is made. Its last answer is never too late.
const MAX_CHECKS: u32 = 3;

impl Limiter {
    /// Holds the units of `receipt`, all of which are in flight.
    pub(super) fn hold_in_flight(&self, receipt: Arc<Receipt>) -> HeldUnits {
        let id = self.0.units.hold(receipt);
        self.start_keeper();
        HeldUnits { limiter: self.clone(), id }
    }

    /// Waits for a check that takes units in flight. If its reply comes later than `latest`, the units are refunded, and
    /// the check is made again: they may have expired, because the runtime of the caller was not polled.
    pub(super) async fn check_in_time(
        self,
        mut call: WaitingCheck<'static>,
        latest: Duration,
    ) -> Answered<'static> {
        let mut checks = 1;
        loop {
            let asked = Instant::now();
            let runtime = runtime_with_timer();
            let awaited = AwaitedCheck { limiter: self.clone(), runtime, call: Some(call) };
            let check = awaited.await?;
            if checks == MAX_CHECKS
                || asked.elapsed() <= latest
                || check.reply.source == Source::Fallback
            {
                return Ok(check);
            }
            let decision = Decision::new(check.clone());
            let Ok(Decision::Allowed(allowed)) = decision else { return Ok(check) };
            self.refund(&allowed.into_receipt()).await?;
            match self.0.store.acquire(Checked::new(check.charges), None) {
                Progress::Decided(check) => return check,
                Progress::Waits(again) => call = again,
            }
            checks += 1;
        }
    }
}

/// A check that takes units in flight, and that waits for the store. If it is dropped, a task waits for the reply in
/// its place, and releases the units. Otherwise a client that hangs up would hold a unit until it expires.
struct AwaitedCheck {
    limiter: Limiter,
    /// The runtime of the task.
    runtime: Option<Handle>,
    /// `None` once it has ended.
    call: Option<WaitingCheck<'static>>,
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
            if let Ok(decision) = call.await.and_then(Decision::new)
                && let Some(receipt) = decision.in_flight()
            {
                limiter.release(&receipt);
            }
        });
    }
}
