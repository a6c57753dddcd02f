//! The number of instances that share the limits.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::runtime::{BackgroundTask, RunningFlag};

/// The number of instances that share the limits, and the task that counts them.
#[derive(Debug)]
pub(super) struct Instances {
    /// The number that was [set](super::Resilience::instances).
    set: Option<u32>,
    /// The highest of the last counts, or 0 before the first one.
    pub(super) counted: AtomicU32,
    /// The task that announces this instance.
    pub(super) announcer: BackgroundTask,
    /// Set while the task runs.
    pub(super) is_announced: RunningFlag,
    /// Set if the store counts instances.
    pub(super) is_counting: bool,
}

impl Instances {
    pub(super) fn new(set: Option<u32>, is_counting: bool) -> Self {
        Self {
            set,
            counted: AtomicU32::new(0),
            announcer: BackgroundTask::default(),
            is_announced: RunningFlag::default(),
            is_counting,
        }
    }

    /// Returns the number of instances that share each limit: the number that was set, or the last count, or 1.
    pub(super) fn shares(&self) -> u32 {
        self.set.or(self.counted()).unwrap_or(1)
    }

    /// Returns the number of instances that the store knew last, if it has answered an announcement.
    pub(super) fn counted(&self) -> Option<u32> {
        let counted = self.counted.load(Ordering::Relaxed);
        (counted > 0).then_some(counted)
    }

    /// Ends the announcements. The instance counts until its unit expires.
    pub(super) fn stop(&self) {
        self.announcer.stop();
    }
}
