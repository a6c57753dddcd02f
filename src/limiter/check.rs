//! The future of a check.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::{permit::guard_answer, state::LimiterState};
use crate::{
    decision::Decision,
    error::{Effect, Error, ErrorKind},
    policy::Charges,
    store::Answer,
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
    limiter: &'l Arc<LimiterState>,
    charges: Charges<'p>,
    progress: Progress,
}

enum Progress {
    New,
    /// The store was asked.
    Pending(Answer),
    Done,
}

impl<'l, 'p> Check<'l, 'p> {
    #[inline]
    pub(super) fn new(limiter: &'l Arc<LimiterState>, charges: Charges<'p>) -> Self {
        Self { limiter, charges, progress: Progress::New }
    }
}

impl<'p> Future for Check<'_, 'p> {
    type Output = Result<Decision<'p>, Error>;

    /// # Panics
    ///
    /// Panics if it is polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { limiter, charges, progress } = &mut *self;
        if let (Progress::New, Some(store)) = (&*progress, limiter.memory()) {
            *progress = Progress::Done;
            return Poll::Ready(limiter.check_in_memory(store, charges));
        }
        self.poll_store(cx)
    }
}

impl<'p> Check<'_, 'p> {
    #[inline(never)]
    fn poll_store(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision<'p>, Error>> {
        let Self { limiter, charges, progress } = self;
        let Progress::New = progress else { return poll_answer(limiter, charges, progress, cx) };
        *progress = Progress::Done;
        limiter.begin(
            charges,
            |charges, reply| Poll::Ready(Ok(limiter.decide_one(charges, reply))),
            |charges, asked| match asked?.now() {
                Ok(reply) => Poll::Ready(limiter.decide(charges, reply?)),
                Err(asked) => {
                    *progress = Progress::Pending(guard_answer(limiter, charges, asked));
                    poll_answer(limiter, charges, progress, cx)
                }
            },
        )
    }
}

fn poll_answer<'p>(
    limiter: &LimiterState,
    charges: &mut Charges<'p>,
    progress: &mut Progress,
    cx: &mut Context<'_>,
) -> Poll<Result<Decision<'p>, Error>> {
    let Progress::Pending(answer) = progress else { panic!("check polled after it was ready") };
    let reply = ready!(Pin::new(answer).poll(cx));
    *progress = Progress::Done;
    Poll::Ready(limiter.decide(charges, reply?))
}

/// Checks without waiting, or returns an error if the store is remote.
pub(super) fn check_now<'p>(
    limiter: &LimiterState,
    mut charges: Charges<'p>,
) -> Result<Decision<'p>, Error> {
    // No request is sent, because its charge could not be refunded if the reply is late.
    if !limiter.store.is_embedded() {
        let message = "check_now needs an embedded store, but the store of this limiter is remote; \
                       use check(..).await";
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    if let Some(store) = limiter.memory() {
        return limiter.check_in_memory(store, &mut charges);
    }
    let decided = |charges: &mut Charges<'p>, reply| Ok(limiter.decide_one(charges, reply));
    limiter.begin(&mut charges, decided, |charges, answer| {
        let reply = answer?.now().map_err(|_| {
            let message = "the store says that it is embedded, but its answer is not ready";
            Error::new(ErrorKind::Protocol, message).with_effect(Effect::Unknown)
        })?;
        limiter.decide(charges, reply?)
    })
}

impl fmt::Debug for Check<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("charges", &self.charges).finish_non_exhaustive()
    }
}
