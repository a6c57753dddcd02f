//! A request that outlives the call that sent it.

use crate::{
    policy::{Charge, Charges},
    store::Request,
};

/// An owned copy of a request whose answer is awaited. The stages that act on the answer borrow its
/// charges.
#[derive(Debug)]
pub(super) enum OwnedRequest {
    Acquire(Charges<'static>),
    Peek(Charges<'static>),
    Force(Charges<'static>),
    /// A refund, a reset or a block. No stage needs its charges once the request is sent.
    Other,
}

impl OwnedRequest {
    /// Copies a request.
    pub(super) fn new(request: Request<'_>) -> Self {
        match request {
            Request::Acquire(charges) => Self::Acquire(Charges::copy(charges)),
            Request::Peek(charges) => Self::Peek(Charges::copy(charges)),
            Request::Force(charges) => Self::Force(Charges::copy(charges)),
            Request::Refund(_) | Request::Reset(_) | Request::Block(..) | Request::Unblock(_) => {
                Self::Other
            }
        }
    }

    /// Returns the request with borrowed charges, or `None` if it is of another kind.
    pub(super) fn lend(&self) -> Option<Request<'_>> {
        match self {
            Self::Acquire(charges) => Some(Request::Acquire(charges)),
            Self::Peek(charges) => Some(Request::Peek(charges)),
            Self::Force(charges) => Some(Request::Force(charges)),
            Self::Other => None,
        }
    }
}

/// Returns the charges of a check, and an empty slice for other requests.
pub(super) fn charges_of_check<'r>(request: Option<Request<'r>>) -> &'r [Charge<'r>] {
    match request {
        Some(Request::Acquire(charges)) => charges,
        _ => &[],
    }
}
