//! The source of time.

use std::fmt;

use super::Timestamp;

/// The source of time of an embedded store.
///
/// A clock must not run backward. If one does, a charge is decided at the time of the last charge to
/// its key, so that no unit comes back early. If that charge is ahead by more than its window, the clock
/// has been set back, and all units that the key has spent count as charged now.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}
