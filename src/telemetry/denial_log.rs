//! The denials that are reported as events, and the limit on their number.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
};

use tokio::time::Instant;

use crate::{decision::Outcome, random};

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

/// The shortest time between two events for one key under one policy.
const INTERVAL_MILLIS: u32 = 1_000;

/// The table has `TABLE_SETS` sets of `SET_ENTRIES` entries. A key under a policy belongs to one set.
const TABLE_SETS: usize = 256;
const SET_ENTRIES: usize = 4;

/// The times of the last events of a limiter, by key and policy, in a table of fixed size without
/// locks.
///
/// - An entry is free when its event is [`INTERVAL_MILLIS`] old. So there are at most 1024 events in an
///   interval, however many keys are denied.
/// - If no entry of the set is free, the denial is not reported. The next event of the set counts it as
///   a denial of another key.
/// - Two keys whose hashes agree in 40 bits share an entry.
///
/// Threads that report the same key at the same moment may, in rare cases, both emit an event.
#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    reports_all: AtomicBool,
    /// Created for the first denial that may be reported.
    table: OnceLock<Box<DenialTable>>,
}

#[derive(Debug)]
struct DenialTable {
    secrets: [u64; 2],
    origin: Instant,
    sets: [Set; TABLE_SETS],
}

#[derive(Debug, Default)]
struct Set {
    entries: [LoggedDenial; SET_ENTRIES],
    /// Denials that were not reported, of keys of this set that had no entry.
    others: AtomicU64,
}

#[derive(Debug, Default)]
struct LoggedDenial {
    /// The tag of the key and policy in the upper half, the time of the event in milliseconds in
    /// the lower half. 0 if the entry was never used.
    ///
    /// The time wraps after 49 days. An entry that is 49 days old seems to be new for 2 s.
    stamp: AtomicU64,
    /// Denials that were not reported since that event.
    suppressed: AtomicU32,
}

/// The numbers of denials that were not reported before an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Suppressed {
    /// Denials of the same key under the same policy.
    pub(super) same: u32,
    /// Denials of other keys of the same set, whose entry was replaced or which got no entry.
    pub(super) others: u64,
}

impl DenialLog {
    pub(crate) fn set_mode(&self, events: DenialEvents) {
        self.reports_all.store(events == DenialEvents::All, Relaxed);
    }

    pub(crate) fn mode(&self) -> DenialEvents {
        let reports_all = self.reports_all.load(Relaxed);
        if reports_all { DenialEvents::All } else { DenialEvents::OncePerSecond }
    }

    /// Returns the denials that were not reported before this one, if this one is to be reported.
    pub(super) fn due(&self, outcome: &Outcome<'_>) -> Option<Suppressed> {
        if self.mode() == DenialEvents::All {
            return Some(Suppressed { same: 0, others: 0 });
        }
        let table = self.table.get_or_init(Box::default);
        let charge = outcome.charge();
        let [low, high] = table.secrets;
        // A shadow charge has events of its own, apart from those of a charge that is enforced.
        let policy = outcome.policy().id() ^ u64::from(!charge.is_live());
        let [hash, _] = charge.key().digest_keyed([low ^ policy, high]);
        let now = Instant::now().saturating_duration_since(table.origin);
        table.due(hash, now.as_millis() as u32)
    }
}

impl Default for DenialTable {
    fn default() -> Self {
        Self {
            secrets: [random::number(), random::number()],
            origin: Instant::now(),
            sets: std::array::from_fn(|_| Default::default()),
        }
    }
}

impl DenialTable {
    fn due(&self, hash: u64, now: u32) -> Option<Suppressed> {
        let set = &self.sets[hash as usize % TABLE_SETS];
        let tag = (hash >> 32) as u32;
        let stamp = u64::from(tag) << 32 | u64::from(now);
        // Another thread may have read the clock later, but arrived here earlier.
        let is_fresh = |stamp: u64| {
            let age = now.wrapping_sub(stamp as u32);
            stamp != 0 && age.wrapping_add(INTERVAL_MILLIS) < 2 * INTERVAL_MILLIS
        };
        let own = set.entries.iter().find_map(|entry| {
            let before = entry.stamp.load(Relaxed);
            (before != 0 && (before >> 32) as u32 == tag).then_some((entry, before))
        });
        if let Some((entry, before)) = own {
            // If another thread has just reported this key, or has taken the entry, this denial is
            // one of those that follow.
            if is_fresh(before) || !entry.replace(before, stamp) {
                entry.suppressed.fetch_add(1, Relaxed);
                return None;
            }
            let same = entry.suppressed.swap(0, Relaxed);
            return Some(Suppressed { same, others: set.others.swap(0, Relaxed) });
        }
        for entry in &set.entries {
            let before = entry.stamp.load(Relaxed);
            if !is_fresh(before) && entry.replace(before, stamp) {
                let lost = u64::from(entry.suppressed.swap(0, Relaxed));
                let others = set.others.swap(0, Relaxed).saturating_add(lost);
                return Some(Suppressed { same: 0, others });
            }
        }
        set.others.fetch_add(1, Relaxed);
        None
    }
}

impl LoggedDenial {
    /// Replaces the stamp, and returns false if another thread has replaced it before.
    fn replace(&self, before: u64, after: u64) -> bool {
        self.stamp.compare_exchange(before, after, Relaxed, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u32 = 1_000;

    fn same(same: u32) -> Option<Suppressed> {
        Some(Suppressed { same, others: 0 })
    }

    #[test]
    fn one_event_an_interval_with_the_count_of_the_others() {
        let table = DenialTable::default();
        assert_eq!(table.due(7, START), same(0));
        for denial in 0..1_000 {
            assert_eq!(table.due(7, START + denial % 1_000), None);
        }
        assert_eq!(table.due(7, START + 1_000), same(1_000));
        assert_eq!(table.due(7, START + 1_999), None);
        assert_eq!(table.due(7 | 1 << 40, START + 1_999), same(0), "another key");
        assert_eq!(table.due(7, START + 9_000), same(1));
        // The milliseconds wrap.
        assert_eq!(table.due(9, u32::MAX - 100), same(0));
        assert_eq!(table.due(9, 100), None);
        assert_eq!(table.due(9, 899), same(1));
    }

    /// A flood of keys gets no more events than the table has entries, and each denial is counted
    /// once.
    #[test]
    fn a_flood_of_keys_is_bounded() {
        let table = DenialTable::default();
        let denials = 100_000_u64;
        let mut counted = 0;
        for number in 0..denials {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if let Some(suppressed) = table.due(hash, START + number as u32 % 1_000) {
                counted += 1 + u64::from(suppressed.same) + suppressed.others;
            }
        }
        let entries = || table.sets.iter().flat_map(|set| &set.entries);
        let waiting: u64 = table.sets.iter().map(|set| set.others.load(Relaxed)).sum();
        let in_entries: u32 = entries().map(|entry| entry.suppressed.load(Relaxed)).sum();
        assert_eq!(
            entries().filter(|it| it.stamp.load(Relaxed) != 0).count(),
            TABLE_SETS * SET_ENTRIES
        );
        assert_eq!(counted + waiting + u64::from(in_entries), denials);
        // Later events have the counts.
        let later =
            (0..TABLE_SETS as u64).filter_map(|set| table.due(set | 5 << 32, START + 5_000));
        assert!(later.map(|it| it.others).sum::<u64>() >= waiting);
    }

    #[test]
    fn threads_share_the_table() {
        let table = DenialTable::default();
        let counted: u64 = std::thread::scope(|scope| {
            let work = |_| {
                let table = &table;
                scope.spawn(move || {
                    let now = |number: u32| START + number / 100;
                    let reported = (0..100_000).filter_map(|number| table.due(5, now(number)));
                    reported.map(|it| 1 + u64::from(it.same) + it.others).sum::<u64>()
                })
            };
            let threads: Vec<_> = (0..4).map(work).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        let entries = table.sets.iter().flat_map(|set| &set.entries);
        let rest: u64 = entries.map(|it| u64::from(it.suppressed.load(Relaxed))).sum();
        assert_eq!(counted + rest, 400_000, "each denial is reported or counted");
    }
}
