//! The last denials.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Serialize;

/// The [denials](Denial) of a second that are shown. More are counted, so that an attack costs little.
const PER_SECOND: u64 = 20;

/// The [denials](Denial) that are kept.
const RECENT: usize = 50;

/// A denial.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Denial {
    /// The time of the decision, in milliseconds since the Unix epoch.
    pub(super) time: u64,
    pub(super) policy: String,
    pub(super) key: String,
    pub(super) limit: u64,
    /// The wait until the request is admitted, in seconds. Absent if it never is.
    pub(super) retry_after: Option<f64>,
    /// The part that decided.
    pub(super) source: &'static str,
    /// The denials since the previous one that is shown.
    pub(super) suppressed: u64,
}

/// The last denials of this process.
#[derive(Debug, Default)]
pub(super) struct Denials {
    /// The second in the high half, and the denials shown in it.
    shown: AtomicU64,
    suppressed: AtomicU64,
    recent: Mutex<VecDeque<Denial>>,
}

impl Denials {
    /// Keeps a denial, unless enough were kept in this second.
    pub(super) fn record(&self, second: u64, denial: impl FnOnce() -> Denial) {
        if !self.has_room(second) {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let suppressed = self.suppressed.swap(0, Ordering::Relaxed);
        let denial = Denial { suppressed, ..denial() };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.truncate(RECENT - 1);
        recent.push_front(denial);
    }

    /// Returns the last denials, the newest first.
    pub(super) fn newest(&self) -> VecDeque<Denial> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has_room(&self, second: u64) -> bool {
        let shown = self.shown.load(Ordering::Relaxed);
        let count = shown & u64::from(u32::MAX);
        let next = if shown >> 32 != second & u64::from(u32::MAX) {
            second << 32 | 1
        } else if count < PER_SECOND {
            shown + 1
        } else {
            return false;
        };
        // If another denial was faster, this one is among those that are counted only.
        let exchanged =
            self.shown.compare_exchange(shown, next, Ordering::Relaxed, Ordering::Relaxed);
        exchanged.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted() {
        let denials = Denials::default();
        let denial = || Denial {
            time: 0,
            policy: "search".into(),
            key: String::new(),
            limit: 5,
            retry_after: None,
            source: "shared",
            suppressed: 0,
        };
        for _ in 0..100_000 {
            denials.record(1, denial);
        }
        denials.record(2, denial);
        let newest = denials.newest();
        assert_eq!(newest.len() as u64, PER_SECOND + 1);
        assert_eq!(newest[0].suppressed, 100_000 - PER_SECOND);
        (0..1_000).for_each(|second| denials.record(second, denial));
        assert_eq!(denials.newest().len(), RECENT);
    }
}
