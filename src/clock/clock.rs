//! The source of time.

use std::fmt;

use super::Timestamp;

/// The source of time of an embedded store.
///
/// A clock must not run backward. If one does, a charge is decided at the time of the last charge to
/// its key, so that no unit comes back early. If that charge is ahead by more than its window, the clock
/// has been set back, and all units that the key has spent count as charged now.
///
/// A clock of your own, such as that of a simulation:
///
/// ```
/// use std::sync::{
///     Arc,
///     atomic::{AtomicU64, Ordering},
/// };
///
/// use plimsoll::{Clock, Limiter, MemoryConfig, MemoryStore, Policy, Timestamp};
///
/// /// The microseconds that the simulation has reached.
/// #[derive(Debug, Clone, Default)]
/// struct Simulated(Arc<AtomicU64>);
///
/// impl Clock for Simulated {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_micros(self.0.load(Ordering::Relaxed))
///     }
/// }
///
/// let clock = Simulated::default();
/// let limiter = Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock.clone())));
/// let policy = Policy::new("orders", "1/min")?;
/// assert!(limiter.check_now(policy.charge("alice", 1))?.is_allowed());
/// assert!(!limiter.check_now(policy.charge("alice", 1))?.is_allowed());
/// clock.0.fetch_add(60_000_000, Ordering::Relaxed);
/// assert!(limiter.check_now(policy.charge("alice", 1))?.is_allowed());
/// # Ok::<(), plimsoll::Error>(())
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}
