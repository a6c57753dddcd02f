//! The choice of the denials that are reported as events.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The denials for which a [`Limiter`](crate::Limiter) emits an event (feature `tracing`).
/// [`Limiter::set_denial_events`](crate::Limiter::set_denial_events) sets it. The metric
/// `tollgate_decisions_total` (feature `metrics`) counts all denials in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DenialEvents {
    /// At most one event a second for each key and policy, and at most 1024 a second in total.
    ///
    /// The field `suppressed` is the number of denials of the same key and policy since its last
    /// event. If keys found no place in the table of recent events, or lost it to another key, the
    /// field `suppressed_others` of a later event is the number of their denials.
    #[default]
    OncePerSecond,
    /// An event for each denial. An attack then writes a line for each of its requests.
    All,
}

/// The current choice, which all threads share.
#[derive(Debug, Default)]
pub(super) struct Mode {
    all: AtomicBool,
}

impl Mode {
    pub(super) fn set(&self, events: DenialEvents) {
        self.all.store(events == DenialEvents::All, Relaxed);
    }

    pub(super) fn get(&self) -> DenialEvents {
        if self.all.load(Relaxed) { DenialEvents::All } else { DenialEvents::OncePerSecond }
    }
}
