//! The trait that every store implements, and the requests it answers.

use std::{fmt, sync::Arc, time::Instant};

use super::{Answer, Status};
use crate::{decision::Receipt, policy::Charge};

#[doc = include_str!("../../docs/store.md")]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Executes `request` atomically.
    ///
    /// A store whose answer is not ready yet copies what it needs from the request before it
    /// returns the [`Answer`].
    fn call(&self, request: Request<'_>) -> Answer;

    /// Executes `request` like [`call`](Self::call), and answers by `deadline`.
    ///
    /// A limiter whose [`Resilience`](super::Resilience) has a deadline calls this method. It stops
    /// waiting for the answer at `deadline` in any case, and then assumes that the request may have
    /// been applied. A store that knows more overrides this method. By `deadline`, its answer fails
    /// with an error whose [`effect`](crate::Error::effect) is
    ///
    /// - [`Effect::None`](crate::Effect::None) if the request has not been sent and will not be,
    /// - [`Effect::Unknown`](crate::Effect::Unknown) if it has been sent.
    ///
    /// A store that wraps another store passes the deadline on to it. The method is only called in a
    /// tokio runtime, so the store may set a timer. The default implementation ignores the deadline.
    fn call_by(&self, request: Request<'_>, deadline: Instant) -> Answer {
        let _ = deadline;
        self.call(request)
    }

    /// Returns whether every answer of this store is ready at once and never fails, so that it needs
    /// no [`Resilience`](super::Resilience).
    fn is_embedded(&self) -> bool {
        false
    }

    /// Returns the condition of the store. A store that wraps another one forwards to it, and adds
    /// what it knows itself. The default reports nothing.
    fn status(&self) -> Status {
        Status::new()
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn call(&self, request: Request<'_>) -> Answer {
        (**self).call(request)
    }

    fn call_by(&self, request: Request<'_>, deadline: Instant) -> Answer {
        (**self).call_by(request, deadline)
    }

    fn is_embedded(&self) -> bool {
        (**self).is_embedded()
    }

    fn status(&self) -> Status {
        (**self).status()
    }
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn call(&self, request: Request<'_>) -> Answer {
        (**self).call(request)
    }

    fn call_by(&self, request: Request<'_>, deadline: Instant) -> Answer {
        (**self).call_by(request, deadline)
    }

    fn is_embedded(&self) -> bool {
        (**self).is_embedded()
    }

    fn status(&self) -> Status {
        (**self).status()
    }
}

/// A request to a [`Store`]. Its charges differ from each other in policy, key or shadow.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Admits every charge that is not a shadow, or spends nothing. If they are admitted, then
    /// spends each shadow charge that passes by itself.
    Acquire(&'a [Charge<'a>]),
    /// Answers like [`Acquire`](Self::Acquire), and spends nothing.
    Peek(&'a [Charge<'a>]),
    /// Spends the cost of each charge, even beyond the limit.
    Force(&'a [Charge<'a>]),
    /// Returns the units of each line of a receipt, as far as the store still counts them.
    Refund(&'a Receipt),
    /// Forgets what the keys of these charges have spent.
    Reset(&'a [Charge<'a>]),
}
