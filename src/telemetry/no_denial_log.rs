//! The functions of `denial_log.rs`, for builds without the feature `tracing`.

use super::denial_events::{DenialEvents, EventChoice};

#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    mode: EventChoice,
}

impl DenialLog {
    pub(crate) fn set_mode(&self, events: DenialEvents) {
        self.mode.set(events);
    }

    pub(crate) fn mode(&self) -> DenialEvents {
        self.mode.get()
    }
}
