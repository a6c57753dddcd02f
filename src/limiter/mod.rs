//! The handle that applications hold.

mod check;
mod limiter_store;
mod queue;
mod reservation;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

pub use self::{
    check::Check,
    reservation::{Reservation, Reserve},
};

use self::{limiter_store::LimiterStore, queue::Queue};
use crate::{
    decision::{Decision, Receipt, StoreReply},
    error::Error,
    policy::{Charge, Charges},
    store::{Answer, MemoryConfig, MemoryStore, Request, Resilience, Status, Store},
    telemetry,
};

/// Decides whether keys may spend units. Cheap to clone; clones share the store.
///
/// ```
/// use tollgate::{Decision, Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::in_memory();
/// let second = Policy::new("per-second", Quota::per_second(10))?;
/// let day = Policy::new("per-day", Quota::per_day(1_000))?;
///
/// // Both or neither is charged.
/// match limiter.check([second.charge("alice", 1), day.charge("alice", 5)]).await? {
///     Decision::Allowed(allowed) => println!("{:?} units left", allowed.remaining()),
///     Decision::Denied(denied) => println!("come back in {:?}", denied.retry_after()),
/// }
/// # Ok(())
/// # }
/// ```
///
/// A dropped future spends all or nothing; an answer that was lost on its way from a remote store
/// may have spent. With the embedded store a check is decided at the first poll.
#[derive(Debug, Clone)]
pub struct Limiter(Arc<LimiterState>);

#[derive(Debug)]
struct LimiterState {
    store: LimiterStore,
    queue: Queue,
}

impl Limiter {
    /// The most tasks that wait in [`until_ready`](Self::until_ready) at once.
    pub const MAX_WAITING: usize = 10_000;

    /// A limiter over a store. If the store is not embedded, it gets the default [`Resilience`]: a
    /// deadline, a breaker, a fallback in this process, a cache of denials.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self::with(store, Resilience::default())
    }

    /// A limiter over a store that is borne in this way when it is slow, gone or wrong.
    #[must_use]
    pub fn with(store: impl Store, resilience: Resilience) -> Self {
        let store = LimiterStore::new(store, resilience);
        Self(Arc::new(LimiterState { store, queue: Queue::new(Self::MAX_WAITING) }))
    }

    /// A limiter for this process alone, over a [`MemoryStore`] of the default size.
    ///
    /// The first [`SystemClock`](crate::SystemClock) of a process, which may be this one's, measures
    /// how fast the processor ticks. That blocks for about a millisecond, and for 200 at most: make
    /// the limiter when the program starts, not in a request.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(MemoryStore::new(MemoryConfig::default()))
    }

    /// Admits and spends all charges, or spends none. Takes one charge or several.
    ///
    /// # Errors
    ///
    /// If there are more than [`Charges::MAX`], or the store cannot answer; with
    /// the embedded store it always can.
    #[inline]
    pub fn check<'l, 'p>(&'l self, charges: impl Into<Charges<'p>>) -> Check<'l, 'p> {
        Check::new(self, charges.into())
    }

    /// What [`check`](Self::check) would say, spending nothing.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub async fn peek<'p>(&self, charges: impl Into<Charges<'p>>) -> Result<Decision<'p>, Error> {
        let charges = charges.into();
        charges.validate()?;
        let reply = self.0.store.call(Request::Peek(&charges)).await?;
        Decision::new(charges, reply)
    }

    /// As [`check`](Self::check), for work whose cost is known only when it is done: the units are
    /// held, and can be given back or settled. Dropping the reservation keeps the charge.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Quota, Reserve};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::in_memory();
    /// let failed_logins = Policy::new("failed-logins", Quota::per_minute(3))?;
    ///
    /// match limiter.reserve(failed_logins.charge("alice", 1)).await? {
    ///     Reserve::Held(attempt) => {
    ///         let right_password = true;
    ///         if right_password {
    ///             attempt.refund().await?;
    ///         }
    ///     }
    ///     Reserve::Denied(denied) => println!("locked for {:?}", denied.retry_after()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub async fn reserve<'p>(&self, charges: impl Into<Charges<'p>>) -> Result<Reserve<'p>, Error> {
        Ok(match self.check(charges).await? {
            Decision::Allowed(allowed) => Reserve::Held(self.hold(allowed.into_receipt())),
            Decision::Denied(denied) => Reserve::Denied(denied),
        })
    }

    /// The reservation that a receipt stands for, to refund or settle what a
    /// [`check`](Self::check) has spent.
    pub fn hold(&self, receipt: Receipt) -> Reservation {
        Reservation::new(self.clone(), receipt)
    }

    /// Forgets what the keys of these charges have spent under their policies. Costs do not
    /// matter.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub async fn reset<'p>(&self, charges: impl Into<Charges<'p>>) -> Result<(), Error> {
        let charges = charges.into();
        charges.validate()?;
        self.0.store.call(Request::Reset(&charges)).await?;
        Ok(())
    }

    /// Waits until all charges are admitted, for at most `within`: for jobs and clients that would
    /// rather wait than be refused.
    ///
    /// Waiters for the same key under the same policy take turns in the order in which they came,
    /// within this process; plain checks do not queue. A wait that cannot end in time is not
    /// begun: the denial comes back at once.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check); if [`MAX_WAITING`](Self::MAX_WAITING) tasks wait already; or if
    /// its turn did not come in time.
    ///
    /// # Panics
    ///
    /// If it has to wait outside of a tokio runtime with time enabled.
    pub async fn until_ready<'p>(
        &self,
        charges: impl Into<Charges<'p>>,
        within: Duration,
    ) -> Result<Decision<'p>, Error> {
        let charges = charges.into();
        charges.validate()?;
        let deadline = Instant::now() + within.min(Duration::from_secs(86_400 * 365));
        let _turn = self.0.queue.turn(&charges, deadline).await?;
        let decision = loop {
            let reply = self.begin(&charges).await?;
            let wait = match Decision::new(charges.clone(), reply)? {
                Decision::Denied(denied) => match denied.retry_after() {
                    Some(wait) if Instant::now() + wait <= deadline => wait,
                    _ => break Decision::Denied(denied),
                },
                allowed => break allowed,
            };
            tokio::time::sleep(wait).await;
        };
        report(&decision);
        Ok(decision)
    }

    /// Returns the condition of the store: the state of its breaker, its response time, and what is
    /// held in this process.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.store.status()
    }

    /// Begins a check, for callers that want an answer at hand without a future.
    pub(crate) fn begin(&self, charges: &Charges<'_>) -> Answer {
        self.0.store.call(Request::Acquire(charges))
    }

    pub(crate) async fn refund(&self, receipt: &Receipt) -> Result<StoreReply, Error> {
        self.0.store.call(Request::Refund(receipt)).await
    }

    async fn force(&self, charges: &[Charge<'_>]) -> Result<StoreReply, Error> {
        self.0.store.call(Request::Force(charges)).await
    }
}

/// Reports a decision that no route belongs to.
#[inline]
fn report(decision: &Decision<'_>) {
    telemetry::record_decision(decision, || None);
}
