//! The future of a check.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::state::{LimiterState, LimiterStore};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Decision, Source, StoreReply},
    error::{Effect, Error, ErrorKind},
    memory::MemoryStore,
    policy::Charges,
    remote::Fallback,
    store::{Answer, Request},
    telemetry,
};

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
/// use plimsoll::{Check, Error};
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
    limiter: &'l LimiterState,
    charges: Charges<'p>,
    progress: Progress,
    /// The answer of the store, while the check is [pending](Progress::Pending).
    answer: Option<Answer>,
}

#[derive(Clone, Copy)]
enum Progress {
    New,
    Pending,
    Done,
}

impl<'l, 'p> Check<'l, 'p> {
    #[inline]
    pub(super) fn new(limiter: &'l LimiterState, charges: Charges<'p>) -> Self {
        Self { limiter, charges, progress: Progress::New, answer: None }
    }
}

impl<'p> Future for Check<'_, 'p> {
    type Output = Result<Decision<'p>, Error>;

    /// # Panics
    ///
    /// Panics if it is polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let (Progress::New, LimiterStore::Memory(store)) = (this.progress, &this.limiter.store) {
            this.progress = Progress::Done;
            return Poll::Ready(check_in_memory(this.limiter, store, &mut this.charges));
        }
        this.poll_store(cx)
    }
}

impl<'l, 'p> Check<'l, 'p> {
    #[inline(never)]
    fn poll_store(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision<'p>, Error>> {
        if let Progress::New = self.progress {
            self.progress = Progress::Done;
            let answer = match self.begin() {
                // Each of these returns what this function returns, so the decision is not moved.
                Begun::Paid(time, reply) => {
                    return Poll::Ready(pay_with_leased(
                        self.limiter,
                        &mut self.charges,
                        time,
                        reply,
                    ));
                }
                Begun::FallsBack(fallback) => {
                    return Poll::Ready(check_in_fallback(fallback, &mut self.charges));
                }
                Begun::Asks(answer) => answer?,
            };
            match answer.now() {
                Ok(reply) => return Poll::Ready(decide(self.limiter, &mut self.charges, reply?)),
                Err(answer) => {
                    self.progress = Progress::Pending;
                    self.answer = Some(answer);
                }
            }
        }
        let (Progress::Pending, Some(answer)) = (self.progress, &mut self.answer) else {
            panic!("check polled after it was ready")
        };
        let reply = ready!(Pin::new(answer).poll(cx));
        self.progress = Progress::Done;
        Poll::Ready(decide(self.limiter, &mut self.charges, reply?))
    }

    /// Starts a check.
    #[inline]
    fn begin(&mut self) -> Begun<'l> {
        let limiter = self.limiter;
        if let LimiterStore::Remote(pipeline) = &limiter.store
            && let [charge] = &*self.charges
        {
            match pipeline.acquire_leased(charge) {
                Some(Ok((time, reply))) => return Begun::Paid(time, reply),
                Some(Err(answer)) => return Begun::Asks(Ok(answer)),
                None => {}
            }
            if let Some(fallback) = pipeline.fallback_for(charge)
                && !telemetry::reports_decisions()
            {
                return Begun::FallsBack(fallback);
            }
        }
        Begun::Asks(self.charges.validate().map(|()| limiter.begin(&self.charges)))
    }
}

/// The start of a check. A check of one charge may be decided without an [`Answer`].
enum Begun<'l> {
    /// Leased units have paid the charge.
    Paid(Timestamp, ChargeReply),
    /// The fallback decides the charge.
    FallsBack(&'l Fallback),
    Asks(Result<Answer, Error>),
}

/// Checks without waiting, or returns an error if the store is remote.
pub(super) fn check_now<'p>(
    limiter: &LimiterState,
    mut charges: Charges<'p>,
) -> Result<Decision<'p>, Error> {
    let store = match &limiter.store {
        LimiterStore::Memory(store) => return check_in_memory(limiter, store, &mut charges),
        LimiterStore::Embedded(store) => store,
        // No request is sent, because its charge could not be refunded if the reply is late.
        LimiterStore::Remote(_) => {
            let message = "check_now needs an embedded store, but the store of this limiter is remote; \
                           use check(..).await";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
    };
    charges.validate()?;
    let reply = store.call(Request::Acquire(&charges), None).now().map_err(|_| {
        let message = "the store says that it is embedded, but its answer is not ready";
        Error::new(ErrorKind::Protocol, message).with_effect(Effect::Unknown)
    })?;
    decide(limiter, &mut charges, reply?)
}

/// Checks with the memory store.
///
/// A check of one charge has a path of its own: the reply is not borrowed before it is moved, so the
/// compiler writes it straight into the decision. `benches/check.rs` (one charge beside governor)
/// measures this: without it, a check takes 1.15 times as long.
#[inline(never)]
fn check_in_memory<'p>(
    limiter: &LimiterState,
    store: &MemoryStore,
    charges: &mut Charges<'p>,
) -> Result<Decision<'p>, Error> {
    if let [charge] = &**charges
        && !telemetry::reports_decisions()
    {
        let is_shadow = charge.is_shadow();
        let (time, reply) = store.acquire_one(charge);
        return Ok(Decision::of_one(charges, is_shadow, time, Source::Local, reply));
    }
    check_several_in_memory(limiter, store, charges)
}

/// Checks one charge while the breaker is open.
///
/// Like [`check_in_memory`], this is a path of its own. `benches/resilience.rs` (breaker open)
/// measures it: without it, a check takes 1.7 times as long as with the memory store, with it 1.3.
#[inline(never)]
fn check_in_fallback<'p>(
    fallback: &Fallback,
    charges: &mut Charges<'p>,
) -> Result<Decision<'p>, Error> {
    let charge = &charges[0];
    let is_shadow = charge.is_shadow();
    let (time, reply) = fallback.acquire_rejected(charge);
    Ok(Decision::of_one(charges, is_shadow, time, Source::Fallback, reply))
}

/// Decides a check of one charge that leased units have paid.
///
/// Like [`check_in_memory`], the common case borrows nothing of the decision before it is moved.
#[inline(never)]
fn pay_with_leased<'p>(
    limiter: &LimiterState,
    charges: &mut Charges<'p>,
    time: Timestamp,
    reply: ChargeReply,
) -> Result<Decision<'p>, Error> {
    if telemetry::reports_decisions() {
        return pay_and_report(limiter, charges, time, reply);
    }
    Ok(Decision::of_one(charges, false, time, Source::Leased, reply))
}

/// Decides a check like [`pay_with_leased`], and reports the decision.
#[inline(never)]
fn pay_and_report<'p>(
    limiter: &LimiterState,
    charges: &mut Charges<'p>,
    time: Timestamp,
    reply: ChargeReply,
) -> Result<Decision<'p>, Error> {
    let decision = Decision::of_one(charges, false, time, Source::Leased, reply);
    limiter.report(&decision);
    Ok(decision)
}

#[inline(never)]
fn check_several_in_memory<'p>(
    limiter: &LimiterState,
    store: &MemoryStore,
    charges: &mut Charges<'p>,
) -> Result<Decision<'p>, Error> {
    charges.validate()?;
    let reply = store.acquire(charges);
    decide(limiter, charges, reply)
}

#[inline]
fn decide<'p>(
    limiter: &LimiterState,
    charges: &mut Charges<'p>,
    reply: StoreReply,
) -> Result<Decision<'p>, Error> {
    let decision = Decision::new(charges, reply);
    if let Ok(decision) = &decision {
        limiter.report(decision);
    }
    decision
}

impl fmt::Debug for Check<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("charges", &self.charges).finish_non_exhaustive()
    }
}
