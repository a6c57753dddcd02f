//! The store of a limiter.

use std::any::Any;

use crate::store::{Answer, Fallback, MemoryStore, Request, Resilience, Status, Store, Wrapped};

/// A store behind one pointer, except for the stores that decide in this process.
///
/// The type of those is known to the compiler, which then writes the reply of a check where the
/// [`Decision`](crate::Decision) needs it. `benches/check.rs` and `benches/resilience.rs` measure
/// both.
#[derive(Debug)]
pub(super) enum LimiterStore {
    Memory(MemoryStore),
    Fallback(Fallback),
    Other(Box<dyn Store>),
}

impl LimiterStore {
    pub(super) fn new(store: impl Store, resilience: Resilience) -> Self {
        let mut store = Some(store);
        let memory = (&mut store as &mut dyn Any).downcast_mut::<Option<MemoryStore>>();
        if let Some(memory) = memory.and_then(Option::take) {
            return Self::Memory(memory);
        }
        match resilience.wrap(store.expect("a store that is not a memory store")) {
            Wrapped::ByFallback(store) => Self::Fallback(store),
            Wrapped::Otherwise(store) => Self::Other(store),
        }
    }

    pub(super) fn is_embedded(&self) -> bool {
        self.as_store().is_embedded()
    }

    pub(super) fn status(&self) -> Status {
        self.as_store().status()
    }

    pub(super) fn call(&self, request: Request<'_>) -> Answer {
        self.as_store().call(request)
    }

    fn as_store(&self) -> &dyn Store {
        match self {
            Self::Memory(store) => store,
            Self::Fallback(store) => store,
            Self::Other(store) => store,
        }
    }
}
