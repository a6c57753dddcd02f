//! The beginning of a check, which the layer calls too, and its future.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::Limiter;
use crate::{
    decision::{Checked, Decision, StoreReply},
    error::{Effect, Error, ErrorKind},
    policy::{Charge, Charges},
    quota::Quota,
    remote::{Answered, CheckProgress, Progress, WaitingCheck},
    telemetry,
};

/// The part of an expiry after which the answer to a check that takes units in flight comes too late.
const LATE_PER_EXPIRY: u32 = 8;

/// The future that [`Limiter::check`](crate::Limiter::check) returns.
///
/// Nothing is decided before the first poll. With an embedded store the future is ready at the first
/// poll.
///
/// A service that stores its futures can name the type, and need not box it:
///
/// ```
/// use std::{
///     pin::Pin,
///     task::{Context, Poll, ready},
/// };
///
/// use plimsoll::{Error, limiter::Check};
///
/// /// Whether a check allows.
/// pub struct Allowed<'l, 'p>(Check<'l, 'p>);
///
/// impl Future for Allowed<'_, '_> {
///     type Output = Result<bool, Error>;
///
///     fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
///         let decision = ready!(Pin::new(&mut self.0).poll(cx));
///         Poll::Ready(decision.map(|decision| decision.is_allowed()))
///     }
/// }
/// ```
#[must_use = "a check is decided when it is awaited"]
pub struct Check<'l, 'p>(CheckState<'l, 'p>);

enum CheckState<'l, 'p> {
    New(&'l Limiter, Box<Checked<'p>>),
    /// `None` once the check is decided.
    Waiting(Option<WaitingCheck<'p>>),
}

impl<'l, 'p> Check<'l, 'p> {
    #[inline]
    pub(super) fn new(limiter: &'l Limiter, check: Box<Checked<'p>>) -> Self {
        Self(CheckState::New(limiter, check))
    }
}

impl<'p> Future for Check<'_, 'p> {
    type Output = Result<Decision<'p>, Error>;

    /// # Panics
    ///
    /// Panics if it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.0;
        if let CheckState::New(..) = state
            && let CheckState::New(limiter, check) = mem::replace(state, CheckState::Waiting(None))
        {
            match limiter.begin(check, None) {
                Progress::Decided(check) => return Poll::Ready(check.and_then(decide)),
                Progress::Waits(call) => *state = CheckState::Waiting(Some(call)),
            }
        }
        let CheckState::Waiting(Some(call)) = state else {
            panic!("check polled after it was ready")
        };
        let check = ready!(Pin::new(call).poll(cx));
        *state = CheckState::Waiting(None);
        Poll::Ready(check.and_then(decide))
    }
}

impl Limiter {
    /// Begins a check, which waits no longer than `within` for a remote store. One whose charges are not
    /// [valid](Charges::validate) fails at once.
    pub(crate) fn begin<'p>(
        &self,
        check: Box<Checked<'p>>,
        within: Option<Duration>,
    ) -> CheckProgress<'p> {
        if let Err(error) = check.charges.validate() {
            return Progress::Decided(Err(error));
        }
        match self.0.store.acquire(check, within) {
            Progress::Decided(check) => Progress::Decided(check),
            Progress::Waits(call) => Progress::Waits(self.guard(call)),
        }
    }

    /// Wraps a check that takes units in flight, so that they are not lost if its caller stops waiting or is late.
    fn guard<'p>(&self, call: WaitingCheck<'p>) -> WaitingCheck<'p> {
        let quotas = call.charges().iter().map(Charge::quota);
        match quotas.filter(|quota| quota.is_concurrent()).map(Quota::window).min() {
            None => call,
            Some(expiry) => {
                let latest = expiry / LATE_PER_EXPIRY;
                WaitingCheck::boxed(self.clone().check_in_time(call.into_owned(), latest))
            }
        }
    }

    /// Checks like [`check_within`](Self::check_within).
    pub(super) async fn decide_within<'p>(
        &self,
        charges: Charges<'p>,
        within: Duration,
    ) -> Result<Decision<'p>, Error> {
        decide(self.answered(Checked::new(charges), Some(within)).await?)
    }

    /// Checks charges once, and leaves them to the caller, who may check them again.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot answer, or if the charges are not valid.
    pub(super) async fn acquire(&self, charges: &Charges<'_>) -> Result<StoreReply, Error> {
        let check = self.answered(Checked::new(charges.clone()), None).await?;
        Ok(check.reply)
    }

    /// Waits for the reply to a check.
    async fn answered<'p>(
        &self,
        check: Box<Checked<'p>>,
        within: Option<Duration>,
    ) -> Answered<'p> {
        let call = match self.begin(check, within) {
            Progress::Decided(check) => return check,
            Progress::Waits(call) => call,
        };
        call.await
    }

    /// Checks without waiting, as [`check_now`](Self::check_now) says.
    pub(super) fn decide_now<'p>(&self, charges: Charges<'p>) -> Result<Decision<'p>, Error> {
        // No request is sent, because its charge could not be refunded if the reply is late.
        if !self.0.store.is_embedded() {
            let message = "check_now needs an embedded store, but the store of this limiter is remote; \
                           use check(..).await";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        match self.begin(Checked::new(charges), None) {
            Progress::Decided(check) => decide(check?),
            Progress::Waits(_) => {
                let message = "the store says that it is embedded, but its answer is not ready";
                Err(Error::new(ErrorKind::Protocol, message).with_effect(Effect::Unknown))
            }
        }
    }
}

/// Makes the decision on a check, and reports it.
fn decide(check: Box<Checked<'_>>) -> Result<Decision<'_>, Error> {
    telemetry::record_decision(check.outcomes()?, check.reply.source, || None);
    Decision::new(check)
}

impl fmt::Debug for Check<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let charges = match &self.0 {
            CheckState::New(_, check) => Some(&check.charges),
            CheckState::Waiting(_) => None,
        };
        f.debug_struct("Check").field("charges", &charges).finish_non_exhaustive()
    }
}
