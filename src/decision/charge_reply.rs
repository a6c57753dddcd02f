//! The reply of a store to one charge.

use super::{Mark, Standing};

/// The reply of a [`Store`](crate::store::Store) to one [`Charge`](crate::Charge).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ChargeReply {
    /// The verdict on the charge by itself.
    pub verdict: Verdict,
    /// The number of units spent or refunded. The reply to a [`Block`](crate::store::Request::Block) or a
    /// [`Reset`](crate::store::Request::Reset) has 1 if the key had spent units or was blocked, and the
    /// reply to an [`Unblock`](crate::store::Request::Unblock) has 1 if it was blocked. Otherwise they
    /// have 0.
    pub units: u64,
    /// The standing of the key after the request.
    pub standing: Standing,
    /// The record with which the store can refund the units.
    pub mark: Mark,
}

impl ChargeReply {
    /// Creates the reply to one charge, for implementations of [`Store`](crate::store::Store).
    /// `units` is described at the [field](Self::units).
    #[must_use]
    pub fn new(verdict: Verdict, units: u64, standing: Standing, mark: Mark) -> Self {
        Self { verdict, units, standing, mark }
    }
}

/// The verdict on one charge by itself, independent of the other charges of its check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Enough units are free.
    Passed,
    /// Too few units are free at the moment.
    Refused,
    /// The cost exceeds the [capacity](crate::Quota::capacity), so the charge can never pass.
    OverCapacity,
}
