//! The state that a limiter and its clones share.

use std::{any::Any, time::Duration};

use super::{in_flight::UnitsInFlight, queue::Queue};
use crate::{
    decision::{Decision, OneReply, Receipt, StoreReply},
    error::Error,
    memory::MemoryStore,
    policy::{Charge, Charges},
    remote::{Pipeline, Resilience},
    runtime::RunningFlag,
    store::{Answer, NodeId, Request, Status, Store},
    telemetry::{self, DenialLog},
};

#[derive(Debug)]
pub(super) struct LimiterState {
    pub(super) store: LimiterStore,
    pub(super) queue: Queue,
    pub(super) denial_log: DenialLog,
    pub(super) units: UnitsInFlight,
    /// Set while the thread runs that renews and releases units in flight.
    pub(super) keeper: RunningFlag,
}

impl LimiterState {
    pub(super) fn new(store: LimiterStore, queue: Queue) -> Self {
        Self {
            store,
            queue,
            denial_log: DenialLog::default(),
            units: UnitsInFlight::default(),
            keeper: RunningFlag::default(),
        }
    }

    /// Starts a check. The result is that of `decided` if this process decides the only charge (its memory,
    /// its leases, or its fallback while the breaker is open). Otherwise it is that of `asked`, which gets
    /// the answer of the store, or an error if the charges are not valid.
    ///
    /// Functions take the reply, because a reply that is returned is copied several times on its way to the
    /// decision (`benches/resilience.rs`: from stock, breaker open).
    #[inline(always)]
    pub(super) fn begin<'p, T>(
        &self,
        charges: &mut Charges<'p>,
        decided: impl FnOnce(&mut Charges<'p>, OneReply) -> T,
        asked: impl FnOnce(&mut Charges<'p>, Result<Answer, Error>) -> T,
    ) -> T {
        if let [charge] = &**charges {
            match &self.store {
                LimiterStore::Memory(store) => {
                    let reply = store.acquire_one(charge);
                    return decided(charges, reply);
                }
                LimiterStore::Embedded(_) => {}
                LimiterStore::Remote(pipeline) => {
                    return pipeline.acquire_one(charges, decided, asked);
                }
            }
        }
        let answer = charges.validate().map(|()| self.acquire(charges));
        asked(charges, answer)
    }

    /// Returns the memory store, if the limiter has one.
    #[inline]
    pub(super) fn memory(&self) -> Option<&MemoryStore> {
        match &self.store {
            LimiterStore::Memory(store) => Some(store),
            _ => None,
        }
    }

    /// Returns the memory store, if the limiter has one and these charges are a single one under a concurrency
    /// limit, on which nothing is reported.
    #[inline]
    pub(super) fn holds_in_memory(&self, charges: &[Charge<'_>]) -> Option<&MemoryStore> {
        let [charge] = charges else { return None };
        let is_held = charge.quota().is_concurrent() && !telemetry::reports_decisions();
        self.memory().filter(|_| is_held)
    }

    /// Checks with the memory store.
    ///
    /// The reply to one charge is not borrowed before it is moved into the decision, so that the compiler
    /// writes it there: without this path, a check takes 1.2 times as long (`benches/check.rs`, one charge
    /// beside governor).
    #[inline(never)]
    pub(super) fn check_in_memory<'p>(
        &self,
        store: &MemoryStore,
        charges: &mut Charges<'p>,
    ) -> Result<Decision<'p>, Error> {
        match &**charges {
            [charge] if !telemetry::reports_decisions() => {
                let reply = store.acquire_one(charge);
                Ok(Decision::of_one(charges, reply))
            }
            _ => self.check_several_in_memory(store, charges),
        }
    }

    #[inline(never)]
    fn check_several_in_memory<'p>(
        &self,
        store: &MemoryStore,
        charges: &mut Charges<'p>,
    ) -> Result<Decision<'p>, Error> {
        charges.validate()?;
        let reply = store.acquire(charges);
        self.decide(charges, reply)
    }

    /// Starts a check of these valid charges.
    #[inline]
    pub(super) fn acquire(&self, charges: &[Charge<'_>]) -> Answer {
        self.store.call(Request::Acquire(charges))
    }

    /// Makes the decision of a check with one charge, and reports it.
    ///
    /// The common case borrows nothing of the decision before it is returned, so that the compiler
    /// writes it where the caller needs it.
    #[inline(always)]
    pub(super) fn decide_one<'p>(
        &self,
        charges: &mut Charges<'p>,
        reply: OneReply,
    ) -> Decision<'p> {
        if telemetry::reports_decisions() {
            return self.decide_and_report(charges, reply);
        }
        Decision::of_one(charges, reply)
    }

    #[inline(never)]
    fn decide_and_report<'p>(&self, charges: &mut Charges<'p>, reply: OneReply) -> Decision<'p> {
        let decision = Decision::of_one(charges, reply);
        self.report(&decision);
        decision
    }

    /// Makes the decision of a check, and reports it. Like [`decide_one`](Self::decide_one), the common case
    /// borrows nothing of the decision.
    #[inline]
    pub(super) fn decide<'p>(
        &self,
        charges: &mut Charges<'p>,
        reply: StoreReply,
    ) -> Result<Decision<'p>, Error> {
        if telemetry::reports_decisions() || charges.iter().any(Charge::is_trial) {
            return self.decide_several_and_report(charges, reply);
        }
        Decision::new(charges, reply)
    }

    #[inline(never)]
    fn decide_several_and_report<'p>(
        &self,
        charges: &mut Charges<'p>,
        reply: StoreReply,
    ) -> Result<Decision<'p>, Error> {
        let decision = Decision::new(charges, reply)?;
        self.report(&decision);
        Ok(decision)
    }

    pub(super) async fn refund(&self, receipt: &Receipt) -> Result<StoreReply, Error> {
        self.store.call(Request::Refund(receipt)).await
    }

    /// Charges beyond the limit.
    pub(super) async fn force(&self, charges: &[Charge<'_>]) -> Result<StoreReply, Error> {
        self.store.call(Request::Force(charges)).await
    }

    /// Reports a decision without a route.
    #[inline]
    pub(super) fn report(&self, decision: &Decision<'_>) {
        telemetry::record_decision(decision, &self.denial_log, || None);
    }
}

/// The start of a check: the reply if this process has decided the only charge (its memory, its leases, or
/// its fallback while the breaker is open), or else the answer of the store.
pub(crate) type Begun = Result<OneReply, Answer>;

/// The store of a limiter.
///
/// The memory store is not behind a pointer, so that a check of it is compiled as one function, and
/// its reply is written where the [`Decision`] needs it (`benches/check.rs`).
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each limiter has one, on the heap")]
pub(super) enum LimiterStore {
    Memory(MemoryStore),
    /// Another embedded store, which needs no protection.
    Embedded(Box<dyn Store>),
    Remote(Pipeline),
}

impl LimiterStore {
    pub(super) fn new(store: impl Store, resilience: Resilience) -> Self {
        let mut store = Some(store);
        let memory = (&mut store as &mut dyn Any).downcast_mut::<Option<MemoryStore>>();
        if let Some(memory) = memory.and_then(Option::take) {
            return Self::Memory(memory);
        }
        let store = store.expect("a store that is not a memory store");
        match store.traits().is_embedded {
            true => Self::Embedded(Box::new(store)),
            false => Self::Remote(Pipeline::new(store, resilience)),
        }
    }

    pub(super) fn is_embedded(&self) -> bool {
        !matches!(self, Self::Remote(_))
    }

    pub(super) fn description(&self) -> String {
        match self {
            Self::Memory(store) => store.description(),
            Self::Embedded(store) => store.description(),
            Self::Remote(pipeline) => pipeline.description(),
        }
    }

    pub(super) fn status(&self) -> Status {
        match self {
            Self::Memory(store) => store.status(),
            Self::Embedded(store) => store.status(),
            Self::Remote(pipeline) => pipeline.status(),
        }
    }

    #[inline]
    pub(super) fn call(&self, request: Request<'_>) -> Answer {
        match self {
            Self::Memory(store) => store.call(request, None),
            Self::Embedded(store) => store.call(request, None),
            Self::Remote(pipeline) => pipeline.call(request),
        }
    }

    /// Executes a request like [`call`](Self::call), and waits no longer than `limit`.
    pub(super) fn call_within(&self, request: Request<'_>, limit: Duration) -> Answer {
        match self {
            Self::Memory(_) | Self::Embedded(_) => self.call(request),
            Self::Remote(pipeline) => pipeline.call_within(request, limit),
        }
    }

    /// Executes a request of the keeper, for which no caller waits.
    pub(super) fn call_in_background(&self, request: Request<'_>) -> Answer {
        match self {
            Self::Memory(_) | Self::Embedded(_) => self.call(request),
            Self::Remote(pipeline) => pipeline.call_in_background(request),
        }
    }

    /// Returns the node that a charge depends on.
    pub(super) fn node(&self, charge: &Charge<'_>) -> NodeId {
        match self {
            Self::Memory(_) | Self::Embedded(_) => NodeId::ONLY,
            Self::Remote(pipeline) => pipeline.node(charge),
        }
    }

    /// Releases the units in flight of a receipt, if the store is embedded. Returns whether it is.
    #[inline]
    pub(super) fn release_now(&self, receipt: &Receipt) -> bool {
        match self {
            Self::Memory(store) => store.release(receipt),
            Self::Embedded(store) => drop(store.call(Request::Refund(receipt), None)),
            Self::Remote(_) => return false,
        }
        true
    }

    /// Refunds the leased units to the store, and leases no more.
    pub(super) async fn close(&self) -> Result<(), Error> {
        match self {
            Self::Memory(_) | Self::Embedded(_) => Ok(()),
            Self::Remote(pipeline) => pipeline.close().await,
        }
    }
}
