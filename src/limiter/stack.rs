//! The store of a limiter, and what stands before it.

use std::any::Any;

use crate::store::{Answer, MemoryStore, Pipeline, Request, Resilience, Status, Store};

/// A store behind one pointer, but for those that decide in this process: with its type known, a
/// check of it is compiled as one piece, and a decision is written where it is wanted.
#[derive(Debug)]
pub(super) enum Stack {
    Memory(MemoryStore),
    Pipeline(Pipeline),
    Other(Box<dyn Store>),
}

impl Stack {
    pub(super) fn new(store: impl Store, resilience: Resilience) -> Self {
        let mut store = Some(store);
        let memory = (&mut store as &mut dyn Any).downcast_mut::<Option<MemoryStore>>();
        if let Some(memory) = memory.and_then(Option::take) {
            return Self::Memory(memory);
        }
        let store = store.expect("a store that is not a memory store");
        match store.is_embedded() {
            true => Self::Other(Box::new(store)),
            false => Self::Pipeline(resilience.protect(store)),
        }
    }

    pub(super) fn is_embedded(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Pipeline(_) => false,
            Self::Other(_) => true,
        }
    }

    pub(super) fn status(&self) -> Status {
        match self {
            Self::Memory(store) => store.status(),
            Self::Pipeline(store) => store.status(),
            Self::Other(store) => store.status(),
        }
    }

    pub(super) fn call(&self, request: Request<'_>) -> Answer {
        match self {
            Self::Memory(store) => store.call(request),
            Self::Pipeline(store) => store.call(request),
            Self::Other(store) => store.call(request),
        }
    }
}
