//! The trait that every store implements, and the requests it answers.

use std::{fmt, sync::Arc};

use super::{Answer, Status};
use crate::{decision::Receipt, policy::Charge};

#[doc = include_str!("../../docs/store.md")]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Does what is asked, atomically. A store that needs to wait takes what it needs from the
    /// request before it returns.
    fn call(&self, request: Request<'_>) -> Answer;

    /// Whether answers are always at hand and never fail, so that the store needs no
    /// [`Resilience`](super::Resilience).
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

    fn is_embedded(&self) -> bool {
        (**self).is_embedded()
    }

    fn status(&self) -> Status {
        (**self).status()
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
    Refund(&'a Receipt),
    /// Forget what the keys of these charges have spent.
    Reset(&'a [Charge<'a>]),
}
