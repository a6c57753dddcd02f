//! Recent denials, for those who watch them as they happen.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Serialize;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// The denials of a second that are shown. More are counted, so that an attack costs little.
const PER_SECOND: u64 = 20;

/// The recent denials that a new listener receives first.
const RECENT: usize = 50;

/// The denials that wait for a listener. A slower one misses some.
const WAITING: usize = 256;

/// The listeners at a time.
pub(super) const MAX_LISTENERS: usize = 32;

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

/// The recent denials, and their listeners.
#[derive(Debug, Default)]
pub(super) struct Denials {
    /// The second in the high half, and the denials shown in it.
    shown: AtomicU64,
    suppressed: AtomicU64,
    feed: Mutex<Feed>,
}

#[derive(Debug, Default)]
struct Feed {
    recent: VecDeque<Denial>,
    listeners: Vec<Sender<Denial>>,
}

impl Denials {
    /// Shows a denial, unless enough were shown in this second.
    pub(super) fn record(&self, second: u64, denial: impl FnOnce() -> Denial) {
        if !self.has_room(second) {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let suppressed = self.suppressed.swap(0, Ordering::Relaxed);
        let denial = Denial { suppressed, ..denial() };
        let mut feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
        // A listener that is too slow misses the denial. One that is gone is removed.
        feed.listeners.retain(|listener| {
            !matches!(listener.try_send(denial.clone()), Err(mpsc::error::TrySendError::Closed(_)))
        });
        if feed.recent.len() == RECENT {
            feed.recent.pop_front();
        }
        feed.recent.push_back(denial);
    }

    /// Returns a listener, which first receives the recent denials. Returns `None` if there are
    /// [too many](MAX_LISTENERS).
    pub(super) fn listen(&self) -> Option<Receiver<Denial>> {
        let mut feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
        feed.listeners.retain(|listener| !listener.is_closed());
        if feed.listeners.len() >= MAX_LISTENERS {
            return None;
        }
        let (sender, receiver) = mpsc::channel(WAITING);
        for denial in &feed.recent {
            // There is room for all: `RECENT` is less than `WAITING`.
            let _ = sender.try_send(denial.clone());
        }
        feed.listeners.push(sender);
        Some(receiver)
    }

    fn has_room(&self, second: u64) -> bool {
        let shown = self.shown.load(Ordering::Relaxed);
        let next = match shown >> 32 == second & u64::from(u32::MAX) {
            true if shown & u64::from(u32::MAX) >= PER_SECOND => return false,
            true => shown + 1,
            false => second << 32 | 1,
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

    fn denial() -> Denial {
        Denial {
            time: 0,
            policy: "search".into(),
            key: String::new(),
            limit: 5,
            retry_after: None,
            source: "shared",
            suppressed: 0,
        }
    }

    #[test]
    fn a_flood_is_counted_and_a_slow_listener_holds_nothing_up() {
        let denials = Denials::default();
        let mut early = denials.listen().expect("the first listener");
        for _ in 0..100_000 {
            denials.record(1, denial);
        }
        denials.record(2, denial);
        let received: Vec<_> = std::iter::from_fn(|| early.try_recv().ok()).collect();
        assert_eq!(received.len() as u64, PER_SECOND + 1);
        assert_eq!(received.last().unwrap().suppressed, 100_000 - PER_SECOND);
        for second in 0..1_000 {
            denials.record(second, denial);
        }
        let mut late = denials.listen().expect("the second listener");
        assert_eq!(std::iter::from_fn(|| late.try_recv().ok()).count(), RECENT);
        assert_eq!(std::iter::from_fn(|| early.try_recv().ok()).count(), WAITING);
    }

    #[test]
    fn listeners_are_bounded_and_make_room_when_they_leave() {
        let denials = Denials::default();
        let listeners: Vec<_> = (0..MAX_LISTENERS).map(|_| denials.listen().unwrap()).collect();
        assert!(denials.listen().is_none());
        drop(listeners);
        assert!(denials.listen().is_some());
    }
}
