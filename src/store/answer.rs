//! The answer of a store: ready, or pending.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{decision::StoreReply, error::Error};

/// A [`Store`](super::Store)'s answer: at hand, or on its way.
///
/// An answer at hand costs no allocation, and its future is ready at the first poll.
#[must_use = "an answer on its way does nothing unless polled"]
pub struct Answer(Progress);

type Coming = Pin<Box<dyn Future<Output = Result<StoreReply, Error>> + Send>>;

enum Progress {
    Ready(Result<StoreReply, Error>),
    Pending(Coming),
    Taken,
}

impl Answer {
    /// An answer at hand.
    #[inline]
    pub fn ready(reply: Result<StoreReply, Error>) -> Self {
        Self(Progress::Ready(reply))
    }

    /// An answer on its way.
    pub fn pending(
        reply: impl Future<Output = Result<StoreReply, Error>> + Send + 'static,
    ) -> Self {
        Self(Progress::Pending(Box::pin(reply)))
    }

    /// The answer, if it is at hand.
    ///
    /// # Errors
    ///
    /// The answer itself, to be awaited, if it is on its way.
    #[inline]
    pub fn now(self) -> Result<Result<StoreReply, Error>, Self> {
        match self.0 {
            Progress::Ready(reply) => Ok(reply),
            Progress::Pending(_) | Progress::Taken => Err(self),
        }
    }
}

impl Future for Answer {
    type Output = Result<StoreReply, Error>;

    /// # Panics
    ///
    /// If polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Progress::Pending(future) = &mut self.0 {
            return future.as_mut().poll(cx);
        }
        match mem::replace(&mut self.0, Progress::Taken) {
            Progress::Ready(reply) => Poll::Ready(reply),
            Progress::Pending(_) | Progress::Taken => panic!("answer polled after it was ready"),
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Progress::Ready(_) => "Answer(ready)",
            Progress::Pending(_) => "Answer(pending)",
            Progress::Taken => "Answer(taken)",
        })
    }
}
