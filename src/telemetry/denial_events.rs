//! The choice of the denials that are reported as events.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The denials for which a [`Limiter`](crate::Limiter) emits an event (feature `tracing`).
/// [`Limiter::set_denial_events`](crate::Limiter::set_denial_events) chooses them. The metric
/// `plimsoll_decisions_total` (feature `metrics`) always counts all denials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum DenialEvents {
    /// At most one event a second for each key and policy, and at most 1024 a second for all keys of a
    /// limiter.
    ///
    /// The field `suppressed` is the number of denials of the same key and policy since its last
    /// event. Denials of keys that have no place among the 1024 are counted by the field
    /// `suppressed_others` of a later event.
    #[default]
    OncePerSecond,
    /// An event for each denial. An attack then writes a line for each of its requests.
    All,
}

/// The current choice, which all threads share.
#[derive(Debug, Default)]
pub(super) struct EventChoice {
    all: AtomicBool,
}

impl EventChoice {
    pub(super) fn set(&self, events: DenialEvents) {
        self.all.store(events == DenialEvents::All, Relaxed);
    }

    pub(super) fn get(&self) -> DenialEvents {
        if self.all.load(Relaxed) { DenialEvents::All } else { DenialEvents::OncePerSecond }
    }
}
