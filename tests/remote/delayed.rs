//! A remote store with slow resets. A reset arrives when its answer is awaited or dropped, or still
//! later.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use plimsoll::{
    Charge, Error,
    clock::ManualClock,
    policy::Charges,
    store::{Answer, Request, Store, StoreReply},
};

use crate::remote::Remote;

#[derive(Debug, Clone)]
pub(crate) struct DelayedResets {
    remote: Remote,
    /// Resets that were dropped and have not arrived yet, if they wait for [`arrive`](Self::arrive).
    late: Option<Arc<Mutex<Vec<Charges<'static>>>>>,
}

impl DelayedResets {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self { remote: Remote::new(clock), late: None }
    }

    /// Creates a store in which dropped requests arrive with the next call of [`arrive`](Self::arrive).
    pub(crate) fn late(clock: &ManualClock) -> Self {
        Self { late: Some(Arc::default()), ..Self::new(clock) }
    }

    /// Lets all dropped requests arrive.
    pub(crate) fn arrive(&self) {
        let late = self.late.as_ref().expect("a late store");
        for charges in late.lock().unwrap().drain(..) {
            drop(self.remote.call(Request::Reset(&charges), None));
        }
    }

    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }
}

impl Store for DelayedResets {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let Request::Reset(charges) = request else { return self.remote.call(request, deadline) };
        let charges = charges.iter().cloned().map(Charge::into_owned).collect();
        Answer::pending(DelayedReset { store: self.clone(), state: State::Sent(charges) })
    }
}

struct DelayedReset {
    store: DelayedResets,
    state: State,
}

enum State {
    Sent(Charges<'static>),
    UnderWay(Charges<'static>),
    Arrived(Answer),
    Done,
}

impl DelayedReset {
    fn arrive(&mut self) {
        if let State::Sent(charges) | State::UnderWay(charges) = &self.state {
            self.state = State::Arrived(self.store.remote.call(Request::Reset(charges), None));
        }
    }
}

impl Future for DelayedReset {
    type Output = Result<StoreReply, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Sent(charges) => {
                self.state = State::UnderWay(charges);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            other => self.state = other,
        }
        self.arrive();
        match &mut self.state {
            State::Arrived(answer) => Pin::new(answer).poll(cx),
            _ => panic!("polled after it was ready"),
        }
    }
}

impl Drop for DelayedReset {
    fn drop(&mut self) {
        match (&self.state, &self.store.late) {
            (State::Sent(charges) | State::UnderWay(charges), Some(late)) => {
                late.lock().unwrap().push(charges.clone());
            }
            _ => self.arrive(),
        }
    }
}
