//! The phases of the service, from ready to its end.

use std::sync::Arc;

use tokio::sync::watch;

/// A phase of the service. Each follows the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The service starts, and is not ready.
    Starting,
    /// The service is ready.
    Ready,
    /// The service is not ready for new clients, and answers their requests. Each answer over HTTP/1 closes its
    /// connection, so that clients go elsewhere.
    Draining,
    /// No new connection is accepted. Requests in flight are answered.
    Closing,
}

/// The phase that all parts of the service see. Clones share it.
#[derive(Clone)]
pub(crate) struct Phases(Arc<watch::Sender<Phase>>);

impl Phases {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::channel(Phase::Starting).0))
    }

    /// Returns the phase now.
    pub(crate) fn now(&self) -> Phase {
        *self.0.borrow()
    }

    /// Begins a phase.
    pub(crate) fn begin(&self, phase: Phase) {
        self.0.send_replace(phase);
    }

    /// Waits until this phase, or a later one, has begun.
    pub(crate) async fn reach(&self, phase: Phase) {
        // The sender is not dropped before `self`.
        let _ = self.0.subscribe().wait_for(|now| *now >= phase).await;
    }
}
