//! A flag that says whether a request has been sent.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Effect;

/// A flag of one request that is set when the request is written to a connection.
///
/// The connection pool calls [`mark_sent`](Self::mark_sent) before it sends the request. When a request
/// times out, its future is dropped before [`effect`](Self::effect) is called. So a request that
/// was not sent by then is never sent.
#[derive(Debug, Default)]
pub(super) struct SentFlag {
    sent: AtomicBool,
}

impl SentFlag {
    /// Marks the request as sent.
    pub(super) fn mark_sent(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    /// Marks the request as not sent. Its reply, such as a redirection, has proved that it had no
    /// effect, and it will be sent once more.
    pub(super) fn mark_unsent(&self) {
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
        let sent_flag = SentFlag::default();
        assert_eq!(sent_flag.effect(), Effect::None);
        sent_flag.mark_sent();
        assert_eq!(sent_flag.effect(), Effect::Unknown);
        sent_flag.mark_unsent();
        assert_eq!(sent_flag.effect(), Effect::None);
    }
}
