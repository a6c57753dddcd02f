//! The limiter, the state that its clones share, and its store.

use std::{any::Any, sync::Arc, time::Duration};

use super::{
    check::Check,
    held::HeldUnits,
    in_flight::UnitsInFlight,
    queue::Queue,
    reservation::{Reservation, Reserved},
};
use crate::{
    decision::{Allowed, Checked, Decision, Receipt, StoreReply},
    error::Error,
    memory::{MemoryConfig, MemoryStore},
    policy::{Charge, Charges, OnFailure},
    quota::Quota,
    remote::{CheckProgress, Pipeline, Progress, Resilience},
    runtime::RunningFlag,
    store::{Answer, NodeId, Request, Status, Store},
    telemetry,
};

/// The handle with which an application checks charges.
///
/// It is cheap to clone, and clones share the [`Store`].
///
/// ```
/// use plimsoll::{Decision, Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
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
/// With an embedded store a check is decided at the first poll. If the future of a check is
/// dropped, or the reply of a remote store is lost, the check has spent all of its charges or none.
/// There is one exception: a check over several slots of a cluster, or over the share and the pool
/// of [regions](https://docs.rs/plimsoll-regions), can stay charged in part if a refund fails
/// ([`Effect::Applied`](crate::error::Effect::Applied)).
#[derive(Debug, Clone)]
pub struct Limiter(pub(super) Arc<LimiterState>);

impl Limiter {
    /// Creates a limiter over `store`.
    ///
    /// Requests to a store that is not embedded are protected by the default [`Resilience`]: a
    /// deadline, a circuit breaker, a deny cache, and a fallback in this process.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self::with_resilience(store, Resilience::default())
    }

    /// Creates a limiter over `store`, handling timeouts and outages as configured by `resilience`.
    #[must_use]
    pub fn with_resilience(store: impl Store, resilience: Resilience) -> Self {
        telemetry::describe();
        Self(Arc::new(LimiterState {
            store: LimiterStore::new(store, resilience),
            queue: Queue::default(),
            units: UnitsInFlight::default(),
            keeper: RunningFlag::default(),
        }))
    }

    /// Creates a limiter for this process alone, over a [`MemoryStore`] of the default size.
    ///
    /// The first [`SystemClock`](crate::clock::SystemClock) of a process measures the rate of the processor's
    /// counter, which blocks for about 1 ms and for 200 ms at most. So create the limiter when the
    /// program starts, not in a request.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(MemoryStore::new(MemoryConfig::default()))
    }

    /// Returns a number that identifies this limiter and its clones among all limiters that exist at the
    /// same time.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Admits and spends all charges, or spends none. Takes one [`Charge`] or several.
    ///
    /// # While the store cannot answer
    ///
    /// By default, each process decides by itself under its [share](Resilience::instances) of the limit. So in an
    /// outage, a fleet may spend more than the limit, as [the page on outages][outages] says. Example: a job on
    /// one instance that calls `check` in a loop spends up to 19,000 units of 9,500 a day if Redis fails in
    /// between.
    ///
    /// A job that must never spend more uses [`until_ready`](Self::until_ready), which waits for the store, or
    /// charges with [`OnFailure::Deny`], for which `check` returns the error.
    ///
    /// [outages]: crate::guide::resilience#how-much-is-admitted-at-most
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than [`Charges::MAX`] charges, if the store cannot keep
    /// the quota of a charge, or if the store cannot answer and either a charge says
    /// [`OnFailure::Deny`] or the limiter has no
    /// [fallback](crate::Resilience::fallback). An embedded store can always answer.
    pub fn check<'l, 'p>(&'l self, charges: impl Into<Charges<'p>>) -> Check<'l, 'p> {
        Check::new(self, Checked::new(charges))
    }

    /// Checks like [`check`](Self::check), and returns the decision at once: for programs without an
    /// asynchronous runtime, and for code that cannot wait.
    ///
    /// It needs an embedded store, such as [`MemoryStore`], which never waits.
    ///
    /// ```
    /// use plimsoll::{Decision, Limiter, Policy, Quota};
    ///
    /// fn main() -> Result<(), plimsoll::Error> {
    ///     let limiter = Limiter::in_memory();
    ///     let mails = Policy::new("mails", Quota::per_hour(2))?;
    ///     for mail in ["first", "second", "third"] {
    ///         match limiter.check_now(mails.charge("alice", 1))? {
    ///             Decision::Allowed(_) => println!("sending the {mail}"),
    ///             Decision::Denied(denied) => println!("not before {:?}", denied.retry_after()),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`Invalid`](crate::error::ErrorKind::Invalid) if the store is remote, as
    /// [`RedisStore`](crate::RedisStore) is. In that case, the store is not asked and nothing is charged, even
    /// if this process could decide the check from its cache. Otherwise, returns an error in the cases
    /// of [`check`](Self::check).
    pub fn check_now<'p>(&self, charges: impl Into<Charges<'p>>) -> Result<Decision<'p>, Error> {
        self.decide_now(charges.into())
    }

    /// Checks like [`check`](Self::check), and waits at most `limit` for the store: for callers with a deadline
    /// of their own. The limiter's [deadline](crate::Resilience::deadline) stays in force if it is shorter.
    ///
    /// - If the store has not answered by then, the check has the same result as at the limiter's deadline: by
    ///   default, this process decides.
    /// - The [breaker](crate::resilience::BreakerConfig) counts such a call as failed. So `limit` should be well above the
    ///   usual response time of the store.
    /// - The shortest wait is 1 ms. An embedded store answers at once.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use plimsoll::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let limiter = Limiter::in_memory();
    /// let searches = Policy::new("searches", Quota::per_minute(100))?;
    ///
    /// let time_left = Duration::from_millis(20);
    /// let decision = limiter.check_within(searches.charge("alice", 1), time_left).await?;
    /// assert!(decision.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error in the cases of [`check`](Self::check).
    pub async fn check_within<'p>(
        &self,
        charges: impl Into<Charges<'p>>,
        limit: Duration,
    ) -> Result<Decision<'p>, Error> {
        self.decide_within(charges.into(), limit).await
    }

    /// Returns the decision that [`check`](Self::check) would return, and spends nothing.
    ///
    /// # Errors
    ///
    /// Returns an error in the cases of [`check`](Self::check).
    pub async fn peek<'p>(&self, charges: impl Into<Charges<'p>>) -> Result<Decision<'p>, Error> {
        let charges = charges.into();
        charges.validate()?;
        let reply = self.0.store.call(Request::Peek(&charges)).await?;
        Decision::new(Checked::with_reply(charges, reply))
    }

    /// Checks charges whose cost is known only after the work is done.
    ///
    /// The units of an admitted check are spent, and the [`Reservation`] can refund or settle them.
    /// Dropping the reservation keeps the charge. Units in flight of a
    /// [concurrency limit](crate::Quota::concurrent) are renewed until it is dropped, and then released.
    ///
    /// ```
    /// use plimsoll::{Limiter, Policy, Quota, limiter::Reserved};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let limiter = Limiter::in_memory();
    /// let failed_logins = Policy::new("failed-logins", Quota::per_minute(3))?;
    ///
    /// match limiter.reserve(failed_logins.charge("alice", 1)).await? {
    ///     Reserved::Held(attempt) => {
    ///         let right_password = true;
    ///         if right_password {
    ///             attempt.refund().await?;
    ///         }
    ///     }
    ///     Reserved::Denied(denied) => println!("locked for {:?}", denied.retry_after()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error in the cases of [`check`](Self::check).
    pub async fn reserve<'p>(
        &self,
        charges: impl Into<Charges<'p>>,
    ) -> Result<Reserved<'p>, Error> {
        Ok(match self.check(charges).await? {
            Decision::Allowed(allowed) => Reserved::Held(self.hold(allowed.into_receipt())),
            Decision::Denied(denied) => Reserved::Denied(denied),
        })
    }

    /// Turns the [`Receipt`] of a [`check`](Self::check) into a reservation, which can refund or settle
    /// the units.
    pub fn hold(&self, receipt: Receipt) -> Reservation {
        Reservation::new(self, receipt)
    }

    /// Forgets what the keys of these charges have spent under their policies, and lifts their
    /// [blocks](Self::block). The costs of the charges are ignored. Returns the number of keys that had
    /// spent units or were blocked, which is 0 if the charges name other keys than the rules do.
    ///
    /// Work in progress may later refund a charge from before the reset. Under a log, such a refund gives back
    /// nothing. Under the other algorithms, it may give back units that were charged after the reset.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than [`Charges::MAX`] charges, or if the store cannot
    /// answer. The fallback does not replace this request.
    pub async fn reset<'p>(&self, charges: impl Into<Charges<'p>>) -> Result<usize, Error> {
        let charges = charges.into();
        charges.validate()?;
        let reply = self.0.store.call(Request::Reset(&charges)).await?;
        Ok(reply.found_keys())
    }

    /// Waits until all charges are admitted, for at most `within`: for jobs and clients that prefer a
    /// wait to a denial.
    ///
    /// Tasks of this process that wait for the same key under the same policy are admitted in the order
    /// in which they called. Other checks do not queue. If the wait would end after `within`, the denial
    /// is returned at once, with the wait for the turn behind the tasks that wait already.
    ///
    /// # While the store cannot answer
    ///
    /// The task waits until the store answers again, so an outage never spends more than the quota.
    /// [`Charge::with_on_failure`](crate::Charge::with_on_failure) changes this:
    ///
    /// - [`OnFailure::Local`]: this process decides by itself. Without a
    ///   [fallback](crate::Resilience::without_fallback), the error is returned at once.
    /// - [`OnFailure::Allow`]: the charge is admitted. Without a fallback, the error
    ///   is returned at once.
    /// - [`OnFailure::Deny`]: the task waits, as by default.
    ///
    /// A [shadow](crate::Charge::shadow) never waits for the store.
    ///
    /// A check whose reply is lost may have been charged. It is repeated, so units may be counted that
    /// are not used. After a few such checks, the [breaker](crate::resilience::BreakerConfig) sends no more of them.
    ///
    /// # Errors
    ///
    /// Returns an error
    ///
    /// - in the cases of [`check`](Self::check). An error from which the store may recover by itself is
    ///   returned only when `within` has passed.
    /// - if 10,000 tasks wait already,
    /// - if `within` passes before the task becomes the first in the queue of its key, because other processes have
    ///   spent the units or the first one waits for the store
    ///   ([`ErrorKind::Deadline`](crate::error::ErrorKind::Deadline)),
    /// - if it has to wait outside of a tokio runtime with time enabled.
    pub async fn until_ready<'p>(
        &self,
        charges: impl Into<Charges<'p>>,
        within: Duration,
    ) -> Result<Decision<'p>, Error> {
        let charges = charges.into().or_on_failure(OnFailure::Deny);
        self.until_ready_after(charges, within, |_| Ok(None)).await
    }

    /// Returns the status of the store: the state of its breaker, its response time, and the units and
    /// keys in this process.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.store.status()
    }

    /// Gives units of this process back to the store, so that other processes can use them. Call it when
    /// the process ends.
    ///
    /// - [Leased](crate::Quota::leased) units that were not used are refunded. The limiter leases no more
    ///   units: later checks are decided by the store.
    /// - Units in flight of a [concurrency limit](crate::Quota::concurrent) that have been released, but are
    ///   still on their way to the store, are sent. Units of work that goes on are kept.
    ///
    /// If the process ends without this call, its units come back by themselves when they leave the window
    /// or expire.
    ///
    /// It waits up to 2 s for the releases, and then up to 2 s for the leases.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot answer. The units come back by themselves then.
    pub async fn close(&self) -> Result<(), Error> {
        let released = self.send_all_released().await;
        self.0.store.close().await.and(released)
    }

    /// Spends the cost of all charges, even beyond the limit. Takes one [`Charge`] or
    /// several.
    ///
    /// The [outcomes](Allowed::outcomes) have the standings of the keys after the charge, and the
    /// [receipt](Allowed::into_receipt) can refund it. A key that has spent more than its limit is
    /// refused until enough units have come back:
    ///
    /// - The [bounds](crate#choosing-an-algorithm) of the algorithms count the units of checks, and not of
    ///   penalties.
    /// - The debt of a [token bucket](crate::Algorithm::TokenBucket) is at most `burst + limit` units.
    ///   So the key has free units again one window after the last penalty, whatever its cost was.
    /// - If a key has no units left, this process refunds all units that it has
    ///   [leased](crate::Quota::leased). Other processes may spend theirs until their lease ends.
    /// - To deny a key for a given time, use [`block`](Self::block).
    ///
    /// ```
    /// use plimsoll::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let limiter = Limiter::in_memory();
    /// let search = Policy::new("search", Quota::per_minute(100))?;
    ///
    /// // A request that was ten times as expensive as others.
    /// let charged = limiter.penalize(search.charge("alice", 9)).await?;
    /// assert_eq!(charged.remaining(), Some(91));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than [`Charges::MAX`](crate::policy::Charges::MAX) charges, or if
    /// the store cannot answer and either may have spent the units
    /// ([`Effect::Unknown`](crate::error::Effect::Unknown)) or the limiter has no
    /// [fallback](crate::Resilience::fallback). If the store has certainly not spent the
    /// units, the fallback spends them, whatever the [`OnFailure`] of the
    /// charges, and charges them to the store later.
    pub async fn penalize<'p>(
        &self,
        charges: impl Into<Charges<'p>>,
    ) -> Result<Allowed<'p>, Error> {
        let charges = charges.into();
        charges.validate()?;
        let reply = self.force(&charges).await?;
        Decision::forced(Checked::with_reply(charges, reply))
    }

    /// Blocks the keys of these charges under their policies for `duration`. Takes one
    /// [`Charge`] or several; their costs are ignored.
    /// Returns the number of keys that had spent units or were already blocked. It is 0 if the block meets
    /// a new key, for example because the address of a client was written in another way than the
    /// [rule](crate::Rule) charges it.
    ///
    /// While a key is blocked, all instances that share the store refuse each charge of 1 unit or more
    /// to it under this policy. No unit remains, and `retry_after` is exact: the end of the block, or
    /// the wait of the algorithm if that is longer.
    ///
    /// - If the key is already blocked, the block that ends later applies. To shorten a block,
    ///   [`unblock`](Self::unblock) the key first.
    /// - [`unblock`](Self::unblock) and [`reset`](Self::reset) lift the block.
    /// - The key keeps the units that it has spent. They come back during the block, and can be
    ///   refunded. Forced charges, such as [`penalize`](Self::penalize) makes, also spend units during the
    ///   block.
    /// - If the clock of the store is set back, the rest of the block is at most `duration`.
    /// - The block ends when the policy gets another [algorithm](crate::Algorithm), because the key
    ///   then has a new state.
    ///
    /// ```
    /// use std::time::Duration;
    /// use plimsoll::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let limiter = Limiter::in_memory();
    /// let logins = Policy::new("logins", Quota::per_minute(5))?;
    ///
    /// limiter.block(logins.charge("mallory", 1), Duration::from_secs(15 * 60)).await?;
    /// assert!(!limiter.check(logins.charge("mallory", 1)).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # When the store cannot answer
    ///
    /// The [fallback](crate::Resilience::fallback) of this process applies the blocks that this
    /// process has made, even if the call returned an error. It does not know the blocks of other
    /// processes. If this method returned an error, the block is not sent to the store later: call the
    /// method again.
    ///
    /// # Errors
    ///
    /// Returns an error if `duration` is zero or longer than 400 days, if
    /// there are more than [`Charges::MAX`](crate::policy::Charges::MAX) charges, or if the store cannot
    /// answer. The fallback does not replace this request.
    pub async fn block<'p>(
        &self,
        charges: impl Into<Charges<'p>>,
        duration: Duration,
    ) -> Result<usize, Error> {
        let charges = charges.into();
        charges.validate()?;
        if duration.is_zero() || duration > Quota::MAX_WINDOW {
            return Err(Error::invalid("duration of a block", duration, "1 ns to 400 days"));
        }
        let reply = self.0.store.call(Request::Block(&charges, duration)).await?;
        Ok(reply.found_keys())
    }

    /// Lifts the [blocks](Self::block) of the keys of these charges. The keys keep the units that they
    /// have spent. Returns the number of keys that were blocked.
    ///
    /// This process admits the keys at once. Another process may refuse a key for 1 s more, from its
    /// [deny cache](crate::Resilience::without_deny_cache).
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than [`Charges::MAX`](crate::policy::Charges::MAX) charges, or if
    /// the store cannot answer. The fallback does not replace this request.
    pub async fn unblock<'p>(&self, charges: impl Into<Charges<'p>>) -> Result<usize, Error> {
        let charges = charges.into();
        charges.validate()?;
        let reply = self.0.store.call(Request::Unblock(&charges)).await?;
        Ok(reply.found_keys())
    }

    /// Returns the units that an admitted check holds in flight, if there are any.
    pub(crate) fn held_units(&self, decision: &Decision<'_>) -> Option<HeldUnits> {
        decision.in_flight().map(|receipt| self.hold_in_flight(Arc::new(receipt)))
    }

    pub(crate) async fn refund(&self, receipt: &Receipt) -> Result<StoreReply, Error> {
        self.0.store.call(Request::Refund(receipt)).await
    }

    /// Charges beyond the limit.
    pub(super) async fn force(&self, charges: &[Charge<'_>]) -> Result<StoreReply, Error> {
        self.0.store.call(Request::Force(charges)).await
    }

    /// Returns the description of the store and of the stages around it.
    pub(crate) fn description(&self) -> String {
        self.0.store.description()
    }
}

/// The state that a limiter and its clones share.
#[derive(Debug)]
pub(super) struct LimiterState {
    pub(super) store: LimiterStore,
    pub(super) queue: Queue,
    pub(super) units: UnitsInFlight,
    /// Set while the thread runs that renews and releases units in flight.
    pub(super) keeper: RunningFlag,
}

/// The store of a limiter.
///
/// The memory store is not behind a pointer, so that the compiler knows which code a check runs
/// (`benches/check.rs`).
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each limiter has one, on the heap")]
pub(super) enum LimiterStore {
    Memory(MemoryStore),
    /// Another store. It has no protection if it is embedded.
    Other(Pipeline),
}

impl LimiterStore {
    pub(super) fn new(store: impl Store, resilience: Resilience) -> Self {
        let mut store = Some(store);
        let memory = (&mut store as &mut dyn Any).downcast_mut::<Option<MemoryStore>>();
        if let Some(memory) = memory.and_then(Option::take) {
            return Self::Memory(memory);
        }
        let store = store.expect("a store that is not a memory store");
        let is_embedded = store.traits().is_embedded;
        Self::Other(Pipeline::new(store, if is_embedded { Resilience::none() } else { resilience }))
    }

    pub(super) fn is_embedded(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Other(pipeline) => pipeline.is_embedded(),
        }
    }

    pub(super) fn description(&self) -> String {
        match self {
            Self::Memory(store) => store.description(),
            Self::Other(pipeline) => pipeline.description(),
        }
    }

    pub(super) fn status(&self) -> Status {
        match self {
            Self::Memory(store) => store.status(),
            Self::Other(pipeline) => pipeline.status(),
        }
    }

    /// Begins a check, which waits no longer than `within` for a remote store.
    pub(super) fn acquire<'p>(
        &self,
        mut check: Box<Checked<'p>>,
        within: Option<Duration>,
    ) -> CheckProgress<'p> {
        match self {
            Self::Memory(store) => {
                store.acquire(&mut check);
                Progress::Decided(Ok(check))
            }
            Self::Other(pipeline) => pipeline.acquire(check, within),
        }
    }

    /// Executes a request that is not a check.
    pub(super) fn call(&self, request: Request<'_>) -> Answer {
        match self {
            Self::Memory(store) => store.call(request, None),
            Self::Other(pipeline) => pipeline.call(request),
        }
    }

    /// Returns the node that a charge depends on.
    pub(super) fn node(&self, charge: &Charge<'_>) -> NodeId {
        match self {
            Self::Memory(_) => NodeId::ONLY,
            Self::Other(pipeline) => pipeline.node(charge),
        }
    }

    /// Executes a request of the keeper, for which no caller waits.
    pub(super) fn call_in_background(&self, request: Request<'_>) -> Answer {
        match self {
            Self::Memory(_) => self.call(request),
            Self::Other(pipeline) => pipeline.call_in_background(request),
        }
    }

    /// Releases the units in flight of a receipt, if the store is embedded. Returns whether it is.
    pub(super) fn release_now(&self, receipt: &Receipt) -> bool {
        match self {
            Self::Memory(store) => store.release(receipt),
            Self::Other(pipeline) if pipeline.is_embedded() => {
                drop(pipeline.call(Request::Refund(receipt)));
            }
            Self::Other(_) => return false,
        }
        true
    }

    /// Refunds the leased units to the store, and leases no more.
    pub(super) async fn close(&self) -> Result<(), Error> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Other(pipeline) => pipeline.close().await,
        }
    }
}
