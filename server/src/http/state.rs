//! The state that all handlers share.

use std::{sync::Arc, time::Duration};

use plimsoll::{Decision, Error, Limiter, OnFailure, layer::Headers};
use plimsoll_control::{Offenders, Registry};

use super::receipts::Receipts;
use crate::{access::Clients, settings::Settings};

/// The parts of the HTTP API, for its [`router`](super::router()). Clones share them.
#[derive(Clone)]
pub struct Api(Arc<Parts>);

/// The parts of the API.
pub(super) struct Parts {
    pub(super) registry: Registry,
    pub(super) limiter: Limiter,
    pub(super) offenders: Offenders,
    pub(super) clients: Clients,
    pub(super) receipts: Receipts,
    pub(super) headers: Headers,
    pub(super) on_failure: OnFailure,
    pub(super) body_timeout: Duration,
}

impl Api {
    /// Creates the API over a [limiter](Limiter) and the policies of a [registry](Registry).
    ///
    /// # Errors
    ///
    /// Returns an error if the receipts cannot be created.
    pub fn new(
        registry: Registry,
        limiter: Limiter,
        offenders: Offenders,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let secret = settings.receipt_secret.as_deref();
        let lifetime = settings.receipt_lifetime;
        let receipts = Receipts::new(limiter.clone(), registry.clone(), secret, lifetime)?;
        Ok(Self(Arc::new(Parts {
            registry,
            limiter,
            offenders,
            clients: settings.clients.clone(),
            receipts,
            headers: Headers::default(),
            on_failure: settings.on_failure,
            // A body that is late gets a problem document, before the listener ends the request.
            body_timeout: settings.bounds.request_timeout * 9 / 10,
        })))
    }

    pub(super) fn parts(&self) -> &Parts {
        &self.0
    }

    /// Counts a [decision](Decision) for the admin page.
    pub(super) fn record(&self, decision: &Decision<'_>) {
        self.0.offenders.record(decision);
    }
}
