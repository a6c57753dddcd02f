//! The event that lists the limits of a layer, once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::events;

/// An event that is emitted at most once. A clone can emit its event again.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    is_made: AtomicBool,
}

impl Announcement {
    /// Emits the event with this text, unless it was emitted before or no subscriber records it.
    pub(crate) fn make(&self, text: impl FnOnce() -> String) {
        if events::records_announcements() && !self.is_made.swap(true, Relaxed) {
            events::announced(&text());
        }
    }
}

impl Clone for Announcement {
    fn clone(&self) -> Self {
        Self::default()
    }
}
