//! The signals that end the service.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the service: SIGTERM, which an orchestrator sends, and SIGINT, which a person sends
/// with Ctrl-C.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Receives the signals from now on.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses.
    pub(crate) fn new() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for a signal. Returns true if a person has sent it, who does not want to wait until a load
    /// balancer has seen that the service is not ready.
    pub(crate) async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => false,
            _ = self.interrupt.recv() => true,
        }
    }
}
