//! Where standings live.
//!
//! A [`Store`] decides checks. [`MemoryStore`] is embedded; what a store needs beyond that, such as
//! a deadline or a fallback, is a store around a store.

mod departure;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod resilience;

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use smallvec::SmallVec;

#[cfg(feature = "redis")]
pub use self::redis::{RedisConfig, RedisStore};
pub use memory::{MemoryConfig, MemoryStats, MemoryStore};
pub(crate) use resilience::{Borne, BreakerState, Fallback};
pub use resilience::{BreakerConfig, Resilience};

use crate::{
    algorithm::Mark, charge::Charge, clock::Timestamp, error::Error, receipt::Receipt,
    standing::Standing,
};

#[doc = include_str!("../../docs/store.md")]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Does what is asked, atomically. A store that needs to wait takes what it needs from the
    /// request before it returns.
    fn call(&self, request: Request<'_>) -> Answer;

    /// Whether answers are always at hand and never fail, so that the store needs no
    /// [`Resilience`].
    fn is_embedded(&self) -> bool {
        false
    }
}

/// What a [`Store`] is asked to do. The charges of one request differ in policy, key or shadow.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Admit every charge that is not a shadow, or spend nothing; then spend each shadow charge
    /// that passes, if the others were admitted.
    Acquire(&'a [Charge<'a>]),
    /// Say what [`Acquire`](Self::Acquire) would do, and spend nothing.
    Peek(&'a [Charge<'a>]),
    /// Spend each charge's cost, also beyond the limit.
    Force(&'a [Charge<'a>]),
    /// Give back the units of each line of a receipt, as far as they still weigh.
    GiveBack(&'a Receipt),
    /// Forget what the keys of these charges have spent.
    Reset(&'a [Charge<'a>]),
}

/// What a [`Store`] answers: a line for each line of the request.
#[derive(Debug, Clone)]
pub struct Ruling {
    /// The store's time.
    pub time: Timestamp,
    /// Who answered.
    pub source: Source,
    /// A line for each charge, in their order.
    pub lines: SmallVec<[Line; 1]>,
}

/// What a [`Store`] answers to one charge.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// Whether the charge by itself passes.
    pub verdict: Verdict,
    /// Units spent, or given back.
    pub units: u64,
    /// Where the key stands now.
    pub standing: Standing,
    /// What the store needs to give the units back.
    pub mark: Mark,
}

/// The outcome of one charge, apart from what the others in its check did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// There are enough units.
    Passed,
    /// There are not enough units now.
    Refused,
    /// There can never be enough: the cost exceeds the capacity.
    OverCapacity,
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The standings of this process: an embedded store.
    Local,
    /// The standings of this process, under its share of the limit, because the shared store could
    /// not answer.
    Fallback,
    /// The standings that all instances share.
    Shared,
    /// An answer of a moment ago that still holds.
    Cache,
}

/// A [`Store`]'s answer: at hand, or on its way.
///
/// An answer at hand costs no allocation, and its future is ready at the first poll.
#[must_use = "an answer on its way does nothing unless polled"]
pub struct Answer(Progress);

type Coming = Pin<Box<dyn Future<Output = Result<Ruling, Error>> + Send>>;

enum Progress {
    Ready(Result<Ruling, Error>),
    Pending(Coming),
    Taken,
}

impl Answer {
    /// An answer at hand.
    #[inline]
    pub fn ready(ruling: Result<Ruling, Error>) -> Self {
        Self(Progress::Ready(ruling))
    }

    /// An answer on its way.
    pub fn pending(ruling: impl Future<Output = Result<Ruling, Error>> + Send + 'static) -> Self {
        Self(Progress::Pending(Box::pin(ruling)))
    }

    /// The answer, if it is at hand.
    ///
    /// # Errors
    ///
    /// The answer itself, to be awaited, if it is on its way.
    #[inline]
    pub fn now(self) -> Result<Result<Ruling, Error>, Self> {
        match self.0 {
            Progress::Ready(ruling) => Ok(ruling),
            Progress::Pending(_) | Progress::Taken => Err(self),
        }
    }
}

impl Future for Answer {
    type Output = Result<Ruling, Error>;

    /// # Panics
    ///
    /// If polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Progress::Pending(future) = &mut self.0 {
            return future.as_mut().poll(cx);
        }
        match mem::replace(&mut self.0, Progress::Taken) {
            Progress::Ready(ruling) => Poll::Ready(ruling),
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
