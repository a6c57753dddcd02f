//! The wrapper of the page on stores: it counts the requests, and forwards everything.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Instant,
};

use plimsoll::{
    Charge,
    store::{Answer, Closing, NodeId, Request, Status, Store, Traits},
};

#[derive(Debug)]
pub struct Counted<S> {
    store: S,
    requests: Arc<AtomicU64>,
}

impl<S: Store> Counted<S> {
    pub fn new(store: S) -> Self {
        Self { store, requests: Arc::default() }
    }

    /// Returns the counter of the requests.
    pub fn requests(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.requests)
    }
}

impl<S: Store> Store for Counted<S> {
    fn call(&self, request: Request<'_>, deadline: Option<Instant>) -> Answer {
        self.requests.fetch_add(1, SeqCst);
        self.store.call(request, deadline)
    }

    fn traits(&self) -> Traits {
        self.store.traits()
    }

    fn node(&self, charge: &Charge<'_>) -> NodeId {
        self.store.node(charge)
    }

    fn status(&self) -> Status {
        self.store.status()
    }

    fn description(&self) -> String {
        self.store.description()
    }

    fn close(&self) -> Closing<'_> {
        self.store.close()
    }
}
