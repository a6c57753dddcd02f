//! The counts of one policy, and the way from a decision to them.

use std::{
    cell::RefCell,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use super::sketch::Sketch;

/// The parts of the totals of a policy. Threads in different parts do not wait for each other's memory.
const PARTS: usize = 8;

/// The policies that a thread finds without a search.
const RECENT: usize = 16;

/// The counts of one policy.
#[derive(Debug)]
pub(super) struct PolicyCounts {
    policy: String,
    /// The number of the [`Offenders`](super::Offenders) that have these counts.
    owner: u64,
    parts: [Part; PARTS],
    keys: Mutex<KeyCounts>,
}

/// The units that some of the threads have counted. A part has its cache lines for itself.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Part {
    admitted: AtomicU64,
    denied: AtomicU64,
}

/// The counts of the keys of a policy.
#[derive(Debug)]
pub(super) struct KeyCounts {
    pub(super) denied: Sketch,
    pub(super) spent: Sketch,
    /// The minute of the last halving.
    minute: u64,
}

/// The units under a policy since the start of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
}

impl PolicyCounts {
    pub(super) fn new(policy: &str, owner: u64, capacity: usize, minute: u64) -> Self {
        let keys =
            KeyCounts { denied: Sketch::new(capacity), spent: Sketch::new(capacity), minute };
        Self { policy: policy.into(), owner, parts: Default::default(), keys: Mutex::new(keys) }
    }

    /// Adds the units of a charge to the totals, in this part.
    pub(super) fn add(&self, part: usize, admitted: u64, denied: u64) {
        let part = &self.parts[part % PARTS];
        if admitted > 0 {
            part.admitted.fetch_add(admitted, Relaxed);
        }
        if denied > 0 {
            part.denied.fetch_add(denied, Relaxed);
        }
    }

    pub(super) fn totals(&self) -> Totals {
        self.parts.iter().fold(Totals::default(), |sum, part| Totals {
            admitted: sum.admitted.wrapping_add(part.admitted.load(Relaxed)),
            denied: sum.denied.wrapping_add(part.denied.load(Relaxed)),
        })
    }

    /// Locks the counts of the keys, and halves them once for each minute since the last halving.
    pub(super) fn keys(&self, minute: u64) -> MutexGuard<'_, KeyCounts> {
        let mut counts = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        // After the clock was set back, the counts stay until it has caught up.
        let times = minute.saturating_sub(counts.minute);
        if times > 0 {
            counts.denied.halve(times);
            counts.spent.halve(times);
            counts.minute = minute;
        }
        counts
    }
}

/// The state of a thread.
struct Local {
    /// The number of the thread, which chooses the part of the totals.
    part: usize,
    /// The counts that it has used, by the address of the name of their policy.
    recent: RefCell<[Option<Arc<PolicyCounts>>; RECENT]>,
}

thread_local! {
    static LOCAL: Local = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Local { part: NEXT.fetch_add(1, Relaxed), recent: RefCell::default() }
    };
}

/// Calls `count` with the counts of a policy and the part for this thread. The counts are those that the thread has used,
/// or else those that `find` returns. The address of the name is a place only: another policy may have it later.
pub(super) fn with_counts(
    policy: &str,
    owner: u64,
    find: impl FnOnce() -> Option<Arc<PolicyCounts>>,
    count: impl FnOnce(&PolicyCounts, usize),
) {
    // A thread that ends counts nothing more.
    let _ = LOCAL.try_with(|local| {
        // Names are small allocations, so several may be in one line of memory: the product spreads them.
        let place = (policy.as_ptr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place = place as usize % RECENT;
        let mut recent = local.recent.borrow_mut();
        let used = recent[place].as_deref();
        if used.is_none_or(|it| it.owner != owner || it.policy != policy) {
            recent[place] = find();
        }
        if let Some(counts) = &recent[place] {
            count(counts, local.part);
        }
    });
}
