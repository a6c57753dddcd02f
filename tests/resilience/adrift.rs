//! A remote store whose resets arrive when their answer is awaited or given up, and not before.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tollgate::{
    Charge, Charges, Error, ManualClock,
    store::{Answer, Request, Ruling, Store},
};

use crate::remote::Remote;

#[derive(Debug, Clone)]
pub(crate) struct Adrift(Remote);

impl Adrift {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self(Remote::new(clock))
    }

    pub(crate) fn remote(&self) -> &Remote {
        &self.0
    }
}

impl Store for Adrift {
    fn call(&self, request: Request<'_>) -> Answer {
        let Request::Reset(charges) = request else { return self.0.call(request) };
        let charges = charges.iter().cloned().map(Charge::into_owned).collect();
        Answer::pending(Reset { remote: self.0.clone(), state: State::Sent(charges) })
    }
}

struct Reset {
    remote: Remote,
    state: State,
}

enum State {
    Sent(Charges<'static>),
    UnderWay(Charges<'static>),
    Arrived(Answer),
    Done,
}

impl Reset {
    fn arrive(&mut self) {
        if let State::Sent(charges) | State::UnderWay(charges) = &self.state {
            self.state = State::Arrived(self.remote.call(Request::Reset(charges)));
        }
    }
}

impl Future for Reset {
    type Output = Result<Ruling, Error>;

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

impl Drop for Reset {
    fn drop(&mut self) {
        self.arrive();
    }
}
