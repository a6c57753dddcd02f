//! Units that are held until it is known what the work has cost.

use super::Limiter;
use crate::{
    decision::{Denied, Receipt},
    error::Error,
};

/// What came of [`Limiter::reserve`].
#[derive(Debug)]
#[must_use = "a reservation that nobody reads admits everything"]
pub enum Reserve<'p> {
    /// The units are held.
    Held(Reservation),
    /// At least one charge was refused, and none is held.
    Denied(Denied<'p>),
}

/// Units that have been spent and can still be given back or settled, once.
///
/// Both take the reservation, and neither is ever repeated: a future that is dropped half-way may
/// or may not have given back, but never twice. Dropping the reservation keeps the charge.
///
/// Once is once, for the compiler too:
///
/// ```compile_fail,E0382
/// async fn twice(slot: tollgate::Reservation) -> Result<(), tollgate::Error> {
///     slot.refund().await?;
///     slot.refund().await?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0382
/// async fn both(slot: tollgate::Reservation) -> Result<(), tollgate::Error> {
///     slot.settle(3).await?;
///     slot.refund().await?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn cloned<T: Clone>() {}
/// cloned::<tollgate::Reservation>();
/// ```
///
/// ```compile_fail,E0277
/// fn cloned<T: Clone>() {}
/// cloned::<tollgate::Receipt>();
/// ```
#[derive(Debug)]
#[must_use = "dropping a reservation keeps the charge"]
pub struct Reservation {
    limiter: Limiter,
    receipt: Receipt,
}

impl Reservation {
    pub(super) fn new(limiter: Limiter, receipt: Receipt) -> Self {
        Self { limiter, receipt }
    }

    /// Whether settling needs nothing but this process.
    pub(crate) fn is_embedded(&self) -> bool {
        self.limiter.0.store.is_embedded()
    }

    /// What was charged.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Gives back what the charges still weigh, and says how many units that was: units that would
    /// have come back by now anyway are not given back again. Of what was admitted while the shared
    /// store could not answer, units that it may count by now stay charged (see
    /// [`resilience`](crate::resilience)).
    ///
    /// # Errors
    ///
    /// If the store cannot answer. The units may or may not have been given back.
    pub async fn refund(self) -> Result<u64, Error> {
        let reply = self.limiter.refund(&self.receipt).await?;
        Ok(reply.charges.iter().map(|line| line.units).sum())
    }

    /// Makes every charge of the reservation cost `units`: gives back the rest, or charges what is
    /// missing now, which may exceed the limit.
    ///
    /// # Errors
    ///
    /// If the store cannot answer. The charges may or may not have been settled.
    pub async fn settle(self, units: u64) -> Result<(), Error> {
        let (back, more) = self.receipt.settle(units);
        if !back.lines().is_empty() {
            self.limiter.refund(&back).await?;
        }
        if !more.is_empty() {
            self.limiter.force(&more).await?;
        }
        Ok(())
    }
}
