//! The state that a limiter and its clones share.

use std::{any::Any, time::Duration};

use super::{in_flight::UnitsInFlight, queue::Queue};
use crate::{
    decision::{Decision, Receipt, StoreReply},
    error::Error,
    memory::MemoryStore,
    policy::{Charge, Charges},
    remote::{Call, Pipeline, Resilience, Step},
    runtime::RunningFlag,
    store::{Answer, NodeId, Request, Status, Store},
    telemetry,
};

#[derive(Debug)]
pub(super) struct LimiterState {
    pub(super) store: LimiterStore,
    pub(super) queue: Queue,
    pub(super) units: UnitsInFlight,
    /// Set while the thread runs that renews and releases units in flight.
    pub(super) keeper: RunningFlag,
}

impl LimiterState {
    pub(super) fn new(store: LimiterStore) -> Self {
        Self {
            store,
            queue: Queue::default(),
            units: UnitsInFlight::default(),
            keeper: RunningFlag::default(),
        }
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
        telemetry::record_decision(decision, || None);
    }
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
    #[inline]
    pub(super) fn acquire<'p>(
        &self,
        charges: &mut Charges<'p>,
        within: Option<Duration>,
    ) -> Step<Call<'p>> {
        match self {
            Self::Memory(store) => Step::Decided(Ok(store.acquire(charges))),
            Self::Other(pipeline) => pipeline.acquire(charges, within),
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
