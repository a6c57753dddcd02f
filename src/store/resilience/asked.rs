//! What is kept of a request until its answer comes.

use crate::{
    policy::{Charge, Charges},
    store::Request,
};

pub(super) enum Asked {
    Acquire(Charges<'static>),
    Peek(Charges<'static>),
    Force(Charges<'static>),
    /// Nothing of it can be decided here.
    Other,
}

impl Asked {
    pub(super) fn new(request: Request<'_>) -> Self {
        let owned =
            |charges: &[Charge<'_>]| charges.iter().cloned().map(Charge::into_owned).collect();
        match request {
            Request::Acquire(charges) => Self::Acquire(owned(charges)),
            Request::Peek(charges) => Self::Peek(owned(charges)),
            Request::Force(charges) => Self::Force(owned(charges)),
            Request::Refund(_) | Request::Reset(_) => Self::Other,
        }
    }

    pub(super) fn request(&self) -> Option<Request<'_>> {
        match self {
            Self::Acquire(charges) => Some(Request::Acquire(charges)),
            Self::Peek(charges) => Some(Request::Peek(charges)),
            Self::Force(charges) => Some(Request::Force(charges)),
            Self::Other => None,
        }
    }
}
