//! The settlement of charges when the body of the response has ended.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::time::timeout;

use crate::{limiter::Reservation, outcome::Tally, runtime::runtime_with_timer};

/// The longest time that a remote store may take to settle a charge after the body has ended.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// A guard that settles charges when it is dropped: at the end of the body, or with the body.
pub(crate) struct BodySettlement {
    bytes: u64,
    reservations: HeldCharges,
}

/// Charges that wait for the end of the body. If they are dropped, the estimates stay charged.
pub(super) type HeldCharges = SmallVec<[(Reservation, FinalCost); 1]>;

/// The source of a charge's final cost.
pub(super) enum FinalCost {
    /// A function of the number of bytes in the body.
    OfBody(Arc<dyn Fn(u64) -> u64 + Send + Sync>),
    /// A function of this number of bytes, for a response to HEAD.
    OfLength(Arc<dyn Fn(u64) -> u64 + Send + Sync>, u64),
    /// The count of the handler.
    Tally(Tally),
}

impl FinalCost {
    /// Returns the final cost in units, or `None` if the application's closure panics.
    ///
    /// The panic is caught because it would leave a `Drop`, which aborts the process if it runs
    /// during another panic.
    fn units(&self, bytes: u64) -> Option<u64> {
        match self {
            Self::OfBody(cost) => catch_unwind(AssertUnwindSafe(|| cost(bytes))).ok(),
            Self::OfLength(cost, bytes) => catch_unwind(AssertUnwindSafe(|| cost(*bytes))).ok(),
            Self::Tally(tally) => Some(tally.units()),
        }
    }
}

impl BodySettlement {
    /// Creates the guard for a body, or `None` if there is nothing to settle.
    pub(super) fn new(reservations: HeldCharges) -> Option<Box<Self>> {
        (!reservations.is_empty()).then(|| Box::new(Self { bytes: 0, reservations }))
    }

    /// Counts the bytes of a frame.
    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

impl Drop for BodySettlement {
    fn drop(&mut self) {
        // A remote store may need timers, so it is called only in a runtime that has them.
        let runtime = runtime_with_timer();
        for (reservation, cost) in self.reservations.drain(..) {
            let Some(cost) = cost.units(self.bytes) else { continue };
            if runtime.is_none() && !reservation.is_embedded() {
                continue;
            }
            let mut settling = Box::pin(reservation.settle(cost));
            // An embedded store settles at the first poll. For a remote store, a task with a
            // timeout continues. Without a runtime, or if the store does not answer, the estimate
            // stays.
            let mut cx = Context::from_waker(Waker::noop());
            if settling.as_mut().poll(&mut cx).is_pending()
                && let Some(runtime) = &runtime
            {
                runtime.spawn(timeout(SETTLE_TIMEOUT, settling));
            }
        }
    }
}
