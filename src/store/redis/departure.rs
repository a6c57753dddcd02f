//! The mark that a request has been sent.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Effect;

/// The departure of one request: a flag that is set when the request is written to a connection.
///
/// The connection pool calls [`depart`](Self::depart) before it sends the request. When a request
/// times out, its future is dropped before [`effect`](Self::effect) is called. So a request that
/// had not departed by then is never sent.
#[derive(Debug, Default)]
pub(super) struct Departure {
    sent: AtomicBool,
}

impl Departure {
    /// Marks the request as sent.
    pub(super) fn depart(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    /// Marks the request as not sent. Its reply, such as a redirection, has proved that it had no
    /// effect, and it will be sent once more.
    pub(super) fn rejected(&self) {
        self.sent.store(false, Ordering::Relaxed);
    }

    /// Returns the effect that the request may have had if no reply arrives.
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
