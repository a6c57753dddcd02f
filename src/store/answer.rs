//! The answer of a store to a request.

use std::{
    fmt,
    future::{Ready, ready},
    pin::Pin,
    task::{Context, Poll},
};

use crate::{decision::StoreReply, error::Error};

/// The answer of a [`Store`](super::Store): a reply that is ready, or the future of one.
///
/// An embedded store such as [`MemoryStore`](crate::MemoryStore) returns an answer that is
/// [`ready`](Self::ready). It does not allocate, and [`now`](Self::now) returns its reply without
/// `await`. A remote store returns an answer that is [`pending`](Self::pending).
///
/// # Examples
///
/// ```
/// use plimsoll::{
///     MemoryStore, Policy, Quota, memory::MemoryConfig, store::{Request, Store, Verdict},
/// };
///
/// let store = MemoryStore::new(MemoryConfig::default());
/// let search = Policy::new("search", Quota::per_minute(100))?;
/// let charges = [search.charge("alice", 1)];
///
/// let answer = store.call(Request::Acquire(&charges), None);
/// let reply = answer.now().expect("the answer of a memory store is ready")?;
/// assert_eq!(reply.charges()[0].verdict, Verdict::Passed);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[must_use = "an answer does nothing unless polled"]
pub struct Answer(Readiness);

/// The future of a reply.
pub(crate) type ReplyFuture = Pin<Box<dyn Future<Output = Result<StoreReply, Error>> + Send>>;

enum Readiness {
    Ready(Ready<Result<StoreReply, Error>>),
    Pending(ReplyFuture),
}

impl Answer {
    /// Creates an answer that is ready: a [`StoreReply`] or an [`Error`].
    pub fn ready(reply: Result<StoreReply, Error>) -> Self {
        Self(Readiness::Ready(ready(reply)))
    }

    /// Creates the answer of a store that has to wait for its [`StoreReply`].
    pub fn pending(
        reply: impl Future<Output = Result<StoreReply, Error>> + Send + 'static,
    ) -> Self {
        Self(Readiness::Pending(Box::pin(reply)))
    }

    /// Returns the reply, if it is ready.
    ///
    /// # Errors
    ///
    /// Returns the answer itself if it has to be awaited.
    pub fn now(self) -> Result<Result<StoreReply, Error>, Self> {
        self.now_or_later().map_err(|reply| Self(Readiness::Pending(reply)))
    }

    /// Returns the reply like [`now`](Self::now), or the future of it.
    pub(crate) fn now_or_later(self) -> Result<Result<StoreReply, Error>, ReplyFuture> {
        match self.0 {
            Readiness::Ready(reply) => Ok(reply.into_inner()),
            Readiness::Pending(reply) => Err(reply),
        }
    }
}

impl Future for Answer {
    type Output = Result<StoreReply, Error>;

    /// # Panics
    ///
    /// Panics if polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Readiness::Ready(reply) => Pin::new(reply).poll(cx),
            Readiness::Pending(reply) => reply.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Readiness::Ready(_) => "Answer(ready)",
            Readiness::Pending(_) => "Answer(pending)",
        })
    }
}
