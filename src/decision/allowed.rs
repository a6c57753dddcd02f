//! The details of an admitted check.

use super::{Outcomes, Receipt, ReceiptLine, Source, decision::Details};
use crate::clock::Timestamp;

/// The details of an admitted check: the outcome of each charge, and the receipt.
/// [`Decision`](super::Decision) has an example.
#[derive(Debug, Clone)]
pub struct Allowed<'p>(pub(super) Details<'p>);

impl<'p> Allowed<'p> {
    /// Returns the outcome of every charge, in their order.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes<'_> {
        self.0.outcomes(true)
    }

    /// Returns the fewest units left under any of the policies, or `None` if all charges are
    /// [shadows](crate::Charge::shadow).
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        Some(self.0.binding(true)?.standing().remaining)
    }

    /// Returns the store's time of the decision.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.0.time
    }

    /// Returns the kind of store that decided.
    #[must_use]
    pub fn source(&self) -> Source {
        self.0.source
    }

    /// Returns the [`Receipt`] for a refund or a settlement (see
    /// [`Limiter::hold`](crate::Limiter::hold)).
    pub fn into_receipt(self) -> Receipt {
        let Details { charges, time, source, replies, .. } = self.0;
        let lines = charges
            .into_iter()
            .zip(&replies)
            .filter_map(|(charge, reply)| ReceiptLine::of_reply(charge, reply, source, u64::MAX));
        Receipt::new(time, source, lines)
    }
}
