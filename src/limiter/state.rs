//! The state that a limiter and its clones share.

use std::any::Any;

use super::queue::Queue;
use crate::{
    decision::{Decision, Receipt, StoreReply},
    error::Error,
    memory::MemoryStore,
    policy::Charge,
    remote::{Pipeline, Resilience},
    store::{Answer, Request, Status, Store},
    telemetry::{self, DenialLog},
};

#[derive(Debug)]
pub(super) struct LimiterState {
    pub(super) store: LimiterStore,
    pub(super) queue: Queue,
    pub(super) denial_log: DenialLog,
}

impl LimiterState {
    /// Starts a check.
    pub(super) fn begin(&self, charges: &[Charge<'_>]) -> Answer {
        self.store.call(Request::Acquire(charges))
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
        match store.is_embedded() {
            true => Self::Embedded(Box::new(store)),
            false => Self::Remote(resilience.protect(store)),
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

    pub(super) fn call(&self, request: Request<'_>) -> Answer {
        match self {
            Self::Memory(store) => store.call(request, None),
            Self::Embedded(store) => store.call(request, None),
            Self::Remote(pipeline) => pipeline.call(request),
        }
    }

    /// Refunds the leased units to the store, and leases no more.
    pub(super) async fn close(&self) -> Result<(), Error> {
        match self {
            Self::Memory(_) | Self::Embedded(_) => Ok(()),
            Self::Remote(pipeline) => pipeline.close().await,
        }
    }
}
