//! A reservation of units, until the cost of the work is known.

use std::sync::Arc;

use super::{Limiter, held::HeldUnits, keeper::was_not_sent};
use crate::{
    decision::{Denied, Receipt},
    error::Error,
};

/// The result of [`Limiter::reserve`](crate::Limiter::reserve).
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota, limiter::Reserved};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
/// # let right_password = true;
/// let limiter = Limiter::in_memory();
/// let failures = Policy::new("failed-logins", Quota::per_minute(3))?;
/// match limiter.reserve(failures.charge("alice", 1)).await? {
///     // Only a failed login keeps its unit.
///     Reserved::Held(attempt) if right_password => {
///         attempt.refund().await?;
///     }
///     Reserved::Held(_) => println!("wrong password"),
///     Reserved::Denied(denied) => println!("try again in {:?}", denied.retry_after()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "an unused result admits every request"]
pub enum Reserved<'p> {
    /// The units are spent, and can be refunded or settled.
    Held(Reservation),
    /// At least one charge was refused, and no units are spent.
    Denied(Denied<'p>),
}

/// Spent units that can be refunded or settled once.
///
/// Units in flight, of a [concurrency limit](crate::Quota::concurrent), are renewed until the reservation is
/// dropped, refunded or settled, and then released.
///
/// [`refund`](Self::refund) and [`settle`](Self::settle) consume the reservation, and neither is
/// repeated: if its future is dropped before it is ready, the refund may or may not have been
/// applied, but never twice. Dropping the reservation keeps the charge of all other units.
///
/// The compiler rejects a second use:
///
/// ```compile_fail,E0382
/// async fn twice(slot: plimsoll::limiter::Reservation) -> Result<(), plimsoll::Error> {
///     slot.refund().await?;
///     slot.refund().await?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0382
/// async fn both(slot: plimsoll::limiter::Reservation) -> Result<(), plimsoll::Error> {
///     slot.settle(3).await?;
///     slot.refund().await?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn cloned<T: Clone>() {}
/// cloned::<plimsoll::limiter::Reservation>();
/// ```
///
/// ```compile_fail,E0277
/// fn cloned<T: Clone>() {}
/// cloned::<plimsoll::decision::Receipt>();
/// ```
#[derive(Debug)]
#[must_use = "dropping a reservation keeps the charge, and releases units in flight"]
pub struct Reservation {
    limiter: Limiter,
    receipt: Arc<Receipt>,
    /// The units in flight, if there are any, with their newest receipt.
    held: Option<HeldUnits>,
}

impl Reservation {
    pub(super) fn new(limiter: &Limiter, receipt: Receipt) -> Self {
        let receipt = Arc::new(receipt);
        let held = receipt.in_flight().map(|in_flight| limiter.hold_in_flight(in_flight));
        Self { limiter: limiter.clone(), receipt, held }
    }

    /// Returns whether the store is embedded, so that settling is ready at once.
    pub(crate) fn is_embedded(&self) -> bool {
        self.limiter.0.store.is_embedded()
    }

    /// Returns the receipt of the charges, as they were made. Units in flight are renewed later under other
    /// [marks](crate::store::Mark).
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Refunds the units that the charges still hold, and returns their number.
    ///
    /// Units that have come back by themselves are not refunded again. Units that were admitted while
    /// the shared store could not answer stay charged if that store may count them by now (see
    /// [`resilience`](crate::guide::resilience)). If there is nothing to refund, no request is sent.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot answer. Its [`effect`](Error::effect) tells whether the
    /// units may have been refunded. Units in flight that were not are released when the store answers
    /// again.
    pub async fn refund(self) -> Result<u64, Error> {
        let (refund, _) = self.receipt.without_in_flight().settle(0);
        self.limiter.refund_both(refund, self.held).await
    }

    /// Changes the cost of every charge of the [receipt](Self::receipt) to `units`: refunds the rest,
    /// or charges the difference, even beyond the limit. If it does both, the refund is made first. Units
    /// in flight are released: their work has ended.
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
        let (refund, additional) = self.receipt.without_in_flight().settle(units);
        // Charged first, a bucket could reach its largest debt, at which it forgets units.
        let refunded = self.limiter.refund_both(refund, self.held).await.map(drop);
        if !additional.is_empty() {
            return refunded.and(self.limiter.force(&additional).await.map(drop));
        }
        refunded
    }
}

impl Limiter {
    /// Refunds a receipt, and the units in flight, in one request if it can be. Returns the number of units.
    async fn refund_both(
        &self,
        mut refund: Receipt,
        held: Option<HeldUnits>,
    ) -> Result<u64, Error> {
        let mut units = 0;
        if let Some(released) = held.and_then(HeldUnits::into_receipt) {
            if released.source == refund.source {
                refund.append(&released);
            } else {
                units += self.refund_one(released).await?;
            }
        }
        if !refund.lines().is_empty() {
            units += self.refund_one(Arc::new(refund)).await?;
        }
        Ok(units)
    }

    /// Refunds a receipt. If the store cannot answer, the units in flight are released when it can, as if the
    /// reservation had been dropped.
    async fn refund_one(&self, receipt: Arc<Receipt>) -> Result<u64, Error> {
        let reply = self.refund(&receipt).await;
        if reply.as_ref().is_err_and(was_not_sent)
            && let Some(in_flight) = receipt.in_flight()
        {
            self.release(&in_flight);
        }
        Ok(reply?.charges.iter().map(|charge| charge.units).sum())
    }
}
