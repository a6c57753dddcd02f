//! The beginning of a check, which the layer calls too, and its future.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::Limiter;
use crate::{
    decision::{Decision, Outcomes, StoreReply},
    error::{Effect, Error, ErrorKind},
    policy::{Charge, Charges},
    quota::Quota,
    remote::{Progress, WaitingCheck},
    telemetry,
};

/// The part of an expiry after which the answer to a check that takes units in flight comes too late.
const LATE_PER_EXPIRY: u32 = 8;

/// The future that [`Limiter::check`](crate::Limiter::check) and
/// [`Limiter::check_within`](crate::Limiter::check_within) return.
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
pub struct Check<'l, 'p> {
    limiter: &'l Limiter,
    /// The longest wait for a remote store, if the caller has one.
    within: Option<Duration>,
    state: CheckState<'p>,
}

enum CheckState<'p> {
    New(Charges<'p>),
    Waiting(WaitingCheck),
    Done,
}

impl<'l, 'p> Check<'l, 'p> {
    pub(super) fn new(
        limiter: &'l Limiter,
        charges: Charges<'p>,
        within: Option<Duration>,
    ) -> Self {
        Self { limiter, within, state: CheckState::New(charges) }
    }
}

impl<'p> Future for Check<'_, 'p> {
    type Output = Result<Decision<'p>, Error>;

    /// # Panics
    ///
    /// Panics if it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { limiter, within, state } = &mut *self;
        if let CheckState::New(charges) = state {
            match limiter.begin(charges, *within) {
                Progress::Decided(Ok(reply)) => {
                    let charges = mem::take(charges);
                    *state = CheckState::Done;
                    return Poll::Ready(decide(charges, reply));
                }
                Progress::Decided(Err(error)) => {
                    *state = CheckState::Done;
                    return Poll::Ready(Err(error));
                }
                Progress::Waits(call) => *state = CheckState::Waiting(call),
            }
        }
        let CheckState::Waiting(call) = state else { panic!("check polled after it was ready") };
        let (charges, reply) = ready!(Pin::new(call).poll(cx));
        *state = CheckState::Done;
        Poll::Ready(reply.and_then(|reply| decide(charges, reply)))
    }
}

impl Limiter {
    /// Begins a check, which waits no longer than `within` for a remote store. A check that waits takes the
    /// charges, and returns them with the reply. One whose charges are not [valid](Charges::validate) fails at once.
    pub(crate) fn begin(
        &self,
        charges: &mut Charges<'_>,
        within: Option<Duration>,
    ) -> Progress<WaitingCheck> {
        if let Err(error) = charges.validate() {
            return Progress::Decided(Err(error));
        }
        match self.0.store.acquire(charges, within) {
            Progress::Decided(reply) => Progress::Decided(reply),
            Progress::Waits(call) => Progress::Waits(self.guard(call)),
        }
    }

    /// Wraps a check that takes units in flight, so that they are not lost if its caller stops waiting or is late.
    fn guard(&self, call: WaitingCheck) -> WaitingCheck {
        let quotas = call.charges().iter().map(Charge::quota);
        match quotas.filter(|quota| quota.is_concurrent()).map(Quota::window).min() {
            None => call,
            Some(expiry) => {
                let latest = expiry / LATE_PER_EXPIRY;
                WaitingCheck::boxed(self.clone().check_in_time(call, latest))
            }
        }
    }

    /// Checks charges once, and leaves them to the caller, who may check them again.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot answer, or if the charges are not valid.
    pub(super) async fn acquire(&self, charges: &Charges<'_>) -> Result<StoreReply, Error> {
        let call = match self.begin(&mut charges.clone(), None) {
            Progress::Decided(reply) => return reply,
            Progress::Waits(call) => call,
        };
        call.await.1
    }

    /// Checks without waiting, as [`check_now`](Self::check_now) says.
    pub(super) fn decide_now<'p>(&self, mut charges: Charges<'p>) -> Result<Decision<'p>, Error> {
        // No request is sent, because its charge could not be refunded if the reply is late.
        if !self.0.store.is_embedded() {
            let message = "check_now needs an embedded store, but the store of this limiter is remote; \
                           use check(..).await";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        match self.begin(&mut charges, None) {
            Progress::Decided(reply) => decide(charges, reply?),
            Progress::Waits(_) => {
                let message = "the store says that it is embedded, but its answer is not ready";
                Err(Error::new(ErrorKind::Protocol, message).with_effect(Effect::Unknown))
            }
        }
    }
}

/// Makes the decision on these charges, and reports it.
fn decide(charges: Charges<'_>, reply: StoreReply) -> Result<Decision<'_>, Error> {
    telemetry::record_decision(Outcomes::new(&charges, &reply)?, reply.source, || None);
    Decision::new(charges, reply)
}

impl fmt::Debug for Check<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let charges = if let CheckState::New(charges) = &self.state { Some(charges) } else { None };
        f.debug_struct("Check").field("charges", &charges).finish_non_exhaustive()
    }
}
