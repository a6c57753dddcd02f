//! The future of a check.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::{Charges, Limiter, decided, stack::Stack};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Decision, Source, StoreReply},
    error::Error,
    store::{Answer, MemoryStore},
    telemetry,
};

/// A check on its way: what [`Limiter::check`] returns. With the embedded store it is ready at the
/// first poll, and nothing is decided before.
#[must_use = "a check is decided when it is awaited"]
pub struct Check<'l, 'p> {
    limiter: &'l Limiter,
    charges: Charges<'p>,
    state: State,
}

enum State {
    /// Nothing has been asked yet.
    New,
    /// The charges are no valid check.
    Invalid(Error),
    Asked(Answer),
    Done,
}

impl<'l, 'p> Check<'l, 'p> {
    #[inline]
    pub(super) fn new(limiter: &'l Limiter, charges: Result<Charges<'p>, Error>) -> Self {
        match charges {
            Ok(charges) => Self { limiter, charges, state: State::New },
            Err(error) => {
                Self { limiter, charges: Charges::default(), state: State::Invalid(error) }
            }
        }
    }
}

impl<'p> Future for Check<'_, 'p> {
    type Output = Result<Decision<'p>, Error>;

    /// # Panics
    ///
    /// If polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let State::New = this.state {
            if let (Stack::Memory(store), [_]) = (&this.limiter.0.store, &*this.charges) {
                this.state = State::Done;
                return at_once(store, &mut this.charges);
            }
            match this.limiter.begin(&this.charges).now() {
                Ok(reply) => {
                    this.state = State::Done;
                    return Poll::Ready(join(&mut this.charges, reply));
                }
                Err(answer) => this.state = State::Asked(answer),
            }
        }
        this.poll_asked(cx)
    }
}

/// One charge to the embedded store: most checks there are. The decision is put together in its
/// place, as copying it would take as long as making it.
#[inline(never)]
fn at_once<'p>(
    store: &MemoryStore,
    charges: &mut Charges<'p>,
) -> Poll<Result<Decision<'p>, Error>> {
    let charge = &charges[0];
    let (time, line) = store.acquire(charge);
    decision(mem::take(charges), time, Source::Local, line)
}

#[inline]
fn decision(
    charges: Charges<'_>,
    time: Timestamp,
    source: Source,
    line: ChargeReply,
) -> Poll<Result<Decision<'_>, Error>> {
    let shadow = charges[0].is_shadow();
    if telemetry::reports_decisions() {
        // Apart: what is shown to somebody is not made in its place.
        return told(charges, shadow, time, source, line);
    }
    Poll::Ready(Ok(Decision::of_one(charges, shadow, time, source, line)))
}

#[inline(never)]
fn told(
    charges: Charges<'_>,
    shadow: bool,
    time: Timestamp,
    source: Source,
    line: ChargeReply,
) -> Poll<Result<Decision<'_>, Error>> {
    let decision = Decision::of_one(charges, shadow, time, source, line);
    decided(&decision);
    Poll::Ready(Ok(decision))
}

impl<'p> Check<'_, 'p> {
    #[inline(never)]
    fn poll_asked(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision<'p>, Error>> {
        let reply = match &mut self.state {
            State::Asked(answer) => ready!(Pin::new(answer).poll(cx)),
            state => match mem::replace(state, State::Done) {
                State::Invalid(error) => Err(error),
                _ => panic!("check polled after it was ready"),
            },
        };
        self.state = State::Done;
        Poll::Ready(join(&mut self.charges, reply))
    }
}

#[inline]
fn join<'p>(
    charges: &mut Charges<'p>,
    reply: Result<StoreReply, Error>,
) -> Result<Decision<'p>, Error> {
    let decision = Decision::new(mem::take(charges), reply?)?;
    decided(&decision);
    Ok(decision)
}

impl fmt::Debug for Check<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("charges", &self.charges).finish_non_exhaustive()
    }
}
