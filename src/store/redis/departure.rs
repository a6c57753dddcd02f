//! Tracks whether a request has been sent, for the caller that stops waiting for it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Effect;

/// The departure of one request: whether it has been written to a connection.
///
/// The connection pool calls [`depart`](Self::depart) before it sends the request. A request that
/// times out is dropped first and asked for its [`effect`](Self::effect) then, so a request that
/// had not departed is never sent.
#[derive(Debug, Default)]
pub(super) struct Departure {
    sent: AtomicBool,
}

impl Departure {
    /// Marks the request as sent.
    pub(super) fn depart(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    /// Marks a request that was sent as waiting again. Its reply, such as a redirection, proves
    /// that it had no effect, and it will be sent once more.
    pub(super) fn rejected(&self) {
        self.sent.store(false, Ordering::Relaxed);
    }

    /// Returns what a request without a reply may have done.
    pub(super) fn effect(&self) -> Effect {
        if self.sent.load(Ordering::Relaxed) { Effect::Unknown } else { Effect::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_was_sent_and_not_rejected_may_have_an_effect() {
        let departure = Departure::default();
        assert_eq!(departure.effect(), Effect::None);
        departure.depart();
        assert_eq!(departure.effect(), Effect::Unknown);
        departure.rejected();
        assert_eq!(departure.effect(), Effect::None);
    }
}
