//! A reservation of units, until the cost of the work is known.

use std::sync::Arc;

use super::state::LimiterState;
use crate::{
    decision::{Denied, Receipt},
    error::Error,
};

/// The result of [`Limiter::reserve`](crate::Limiter::reserve).
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota, Reserve};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
/// # let right_password = true;
/// let limiter = Limiter::in_memory();
/// let failures = Policy::new("failed-logins", Quota::per_minute(3))?;
/// match limiter.reserve(failures.charge("alice", 1)).await? {
///     // Only a failed login keeps its unit.
///     Reserve::Held(attempt) if right_password => {
///         attempt.refund().await?;
///     }
///     Reserve::Held(_) => println!("wrong password"),
///     Reserve::Denied(denied) => println!("try again in {:?}", denied.retry_after()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "an unused result admits every request"]
pub enum Reserve<'p> {
    /// The units are spent, and can be refunded or settled.
    Held(Reservation),
    /// At least one charge was refused, and no units are spent.
    Denied(Denied<'p>),
}

/// Spent units that can be refunded or settled once.
///
/// [`refund`](Self::refund) and [`settle`](Self::settle) consume the reservation, and neither is
/// repeated: if its future is dropped before it is ready, the refund may or may not have been
/// applied, but never twice. Dropping the reservation keeps the charge.
///
/// The compiler rejects a second use:
///
/// ```compile_fail,E0382
/// async fn twice(slot: plimsoll::Reservation) -> Result<(), plimsoll::Error> {
///     slot.refund().await?;
///     slot.refund().await?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0382
/// async fn both(slot: plimsoll::Reservation) -> Result<(), plimsoll::Error> {
///     slot.settle(3).await?;
///     slot.refund().await?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn cloned<T: Clone>() {}
/// cloned::<plimsoll::Reservation>();
/// ```
///
/// ```compile_fail,E0277
/// fn cloned<T: Clone>() {}
/// cloned::<plimsoll::Receipt>();
/// ```
#[derive(Debug)]
#[must_use = "dropping a reservation keeps the charge"]
pub struct Reservation {
    limiter: Arc<LimiterState>,
    receipt: Receipt,
}

impl Reservation {
    pub(super) fn new(limiter: Arc<LimiterState>, receipt: Receipt) -> Self {
        Self { limiter, receipt }
    }

    /// Returns whether the store is embedded, so that settling is ready at once.
    pub(crate) fn is_embedded(&self) -> bool {
        self.limiter.store.is_embedded()
    }

    /// Returns the receipt of the charges.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Refunds the units that the charges still hold, and returns their number.
    ///
    /// Units that have come back by themselves are not refunded again. Units that were admitted while
    /// the shared store could not answer stay charged if that store may count them by now (see
    /// [`resilience`](crate::resilience)). If there is nothing to refund, no request is sent.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot answer. Its [`effect`](Error::effect) tells whether the
    /// units may have been refunded.
    pub async fn refund(self) -> Result<u64, Error> {
        let (refund, _) = self.receipt.settle(0);
        if refund.lines().is_empty() {
            return Ok(0);
        }
        let reply = self.limiter.refund(&refund).await?;
        Ok(reply.charges.iter().map(|charge| charge.units).sum())
    }

    /// Changes the cost of every charge of the [receipt](Self::receipt) to `units`: refunds the rest,
    /// or charges the difference, even beyond the limit. If it does both, the refund is made first.
    ///
    /// A charge that was not made, such as a shadow that did not pass, is not in the receipt, and is
    /// not charged.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot answer. The charges may or may not have been settled. If
    /// some charges have a rest to refund and others a difference to charge, a failure of one request
    /// does not prevent the other.
    pub async fn settle(self, units: u64) -> Result<(), Error> {
        let (refund, additional) = self.receipt.settle(units);
        let mut refunded = Ok(());
        // Charged first, a bucket could reach its largest debt, at which it forgets units.
        if !refund.lines().is_empty() {
            refunded = self.limiter.refund(&refund).await.map(drop);
        }
        if !additional.is_empty() {
            return refunded.and(self.limiter.force(&additional).await.map(drop));
        }
        refunded
    }
}
