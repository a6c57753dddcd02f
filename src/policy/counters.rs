//! The counters of a policy.

#[cfg(feature = "tracing")]
use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

#[cfg(feature = "metrics")]
use metrics::{Counter, Key, Level, Metadata, Recorder};
#[cfg(feature = "tracing")]
use tokio::time::Instant;

use crate::sync::Mutex;

/// A comparison of a policy on [trial](crate::Charge::trial) with the live charges of the same checks:
/// the number of checks by the verdict of each. [`Policy::trial_counts`](crate::Policy::trial_counts)
/// returns it.
///
/// Checks without a live charge are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TrialCounts {
    /// Checks that the live charges admitted, and that the trial would admit.
    pub allowed_by_both: u64,
    /// Checks that the live charges admitted, and that the trial would deny: what a stricter limit would
    /// cost.
    pub allowed_by_live_only: u64,
    /// Checks that the live charges denied, and that the trial would admit: what a looser limit would
    /// add.
    pub allowed_by_trial_only: u64,
    /// Checks that the live charges denied, and that the trial would deny.
    pub denied_by_both: u64,
}

/// The names of the outcomes of a charge. [`Outcome::name`](crate::decision::Outcome::name) describes them.
pub(crate) const OUTCOMES: [&str; 5] =
    ["allowed", "denied", "not_charged", "would_allow", "would_deny"];

/// The counters of one policy. The names of its decisions in the metrics are made once, so that counting does not
/// allocate. Without the feature `metrics` there are none.
#[derive(Debug)]
pub(crate) struct Counters {
    trials: Mutex<TrialCounts>,
    /// The samples of the denials by live charges, and by shadows and trials.
    #[cfg(feature = "tracing")]
    denials: [EventSample; 2],
    #[cfg(feature = "metrics")]
    outcomes: [Key; OUTCOMES.len()],
}

/// The last event of one kind, such as a denial, and the number of such cases since then.
#[cfg(feature = "tracing")]
#[derive(Debug, Default)]
pub(crate) struct EventSample {
    first: OnceLock<Instant>,
    /// The time of the next event in milliseconds since the first case.
    next_millis: AtomicU64,
    suppressed: AtomicU64,
}

#[cfg(feature = "tracing")]
impl EventSample {
    /// The shortest time between two events.
    const INTERVAL_MILLIS: u64 = 1_000;

    pub(crate) const fn new() -> Self {
        Self {
            first: OnceLock::new(),
            next_millis: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Returns the number of cases since the last event, if it is time for another one. Of threads that ask at
    /// the same time, one gets the number.
    pub(crate) fn due(&self, now: Instant) -> Option<u64> {
        let first = *self.first.get_or_init(|| now);
        let now_millis = now.saturating_duration_since(first).as_millis() as u64;
        let due = self.next_millis.load(Relaxed);
        let next = now_millis + Self::INTERVAL_MILLIS;
        if now_millis < due
            || self.next_millis.compare_exchange(due, next, Relaxed, Relaxed).is_err()
        {
            self.suppressed.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Relaxed))
    }
}

/// The decision on the live charges of a check, and the verdict on a trial beside them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdicts {
    pub(crate) live_allows: bool,
    pub(crate) trial_allows: bool,
}

impl Counters {
    /// Counts a check with a trial of the policy `name`.
    pub(crate) fn count_trial(&self, name: &str, verdicts: Verdicts) {
        let mut counts = self.trials.lock();
        let count = match (verdicts.live_allows, verdicts.trial_allows) {
            (true, true) => &mut counts.allowed_by_both,
            (true, false) => &mut counts.allowed_by_live_only,
            (false, true) => &mut counts.allowed_by_trial_only,
            (false, false) => &mut counts.denied_by_both,
        };
        *count += 1;
        drop(counts);
        add_to_trial(name, verdicts, 1);
    }

    /// Returns the sample of the denials by live charges, or by shadows and trials.
    #[cfg(feature = "tracing")]
    pub(crate) fn denials(&self, are_live: bool) -> &EventSample {
        &self.denials[usize::from(are_live)]
    }

    pub(super) fn trial_counts(&self) -> TrialCounts {
        *self.trials.lock()
    }

    /// Starts the counters of the policy `name` on trial at 0, as [`start`](Self::start) does.
    pub(crate) fn start_trial(&self, name: &str) {
        for (live_allows, trial_allows) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            add_to_trial(name, Verdicts { live_allows, trial_allows }, 0);
        }
    }
}

#[cfg(feature = "metrics")]
fn add_to_trial(name: &str, verdicts: Verdicts, checks: u64) {
    let [live, trial] = [verdicts.live_allows, verdicts.trial_allows]
        .map(|allows| if allows { "allowed" } else { "denied" });
    let policy = name.to_owned();
    metrics::counter!("plimsoll_trials_total", "policy" => policy, "live" => live, "trial" => trial)
        .increment(checks);
}

#[cfg(not(feature = "metrics"))]
fn add_to_trial(_: &str, _: Verdicts, _: u64) {}

#[cfg(feature = "metrics")]
impl Counters {
    /// Creates the names for the policy `name`, and [starts](Self::start) its counters.
    pub(crate) fn new(name: &str) -> Self {
        let outcomes = OUTCOMES.map(|outcome| {
            let labels = [("policy", name.to_owned()), ("outcome", outcome.to_owned())];
            Key::from_parts("plimsoll_decisions_total", &labels)
        });
        let counters = Self {
            trials: Mutex::default(),
            #[cfg(feature = "tracing")]
            denials: Default::default(),
            outcomes,
        };
        counters.start();
        counters
    }

    /// Starts the counters at 0, unless they exist or there is no recorder yet. Without a series at 0, a
    /// query cannot tell a policy that is never used from one that does not exist.
    pub(crate) fn start(&self) {
        metrics::with_recorder(|recorder| {
            let numbers = 0..OUTCOMES.len();
            numbers.for_each(|number| self.register(recorder, number).increment(0));
        });
    }

    /// Returns the counter of an outcome, by the number of its name.
    pub(crate) fn register(&self, recorder: &dyn Recorder, number: usize) -> Counter {
        recorder.register_counter(&self.outcomes[number], &METADATA)
    }
}

#[cfg(feature = "metrics")]
static METADATA: Metadata<'static> = Metadata::new("plimsoll", Level::INFO, Some("plimsoll"));

#[cfg(not(feature = "metrics"))]
impl Counters {
    pub(crate) fn new(_: &str) -> Self {
        Self {
            trials: Mutex::default(),
            #[cfg(feature = "tracing")]
            denials: Default::default(),
        }
    }

    pub(crate) fn start(&self) {}
}

#[cfg(feature = "tracing")]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_event_a_second_with_the_count_of_the_others() {
        let denials = EventSample::default();
        let start = Instant::now();
        let due = |millis| denials.due(start + Duration::from_millis(millis));
        assert_eq!(due(0), Some(0));
        assert_eq!((0..1_000).find_map(due), None);
        assert_eq!(due(1_000), Some(1_000));
        assert_eq!(due(1_999), None);
        assert_eq!(due(9_000), Some(1));
    }

    #[test]
    fn threads_count_each_denial_once() {
        let denials = EventSample::default();
        let start = Instant::now();
        let due = |number: u64| denials.due(start + Duration::from_micros(number * 100));
        let deny = || (0..100_000).filter_map(&due).map(|it| 1 + it).sum::<u64>();
        let reported: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(deny)).collect();
            threads.into_iter().map(|it| it.join().expect("no panic")).sum::<u64>()
        });
        assert_eq!(reported + denials.suppressed.load(Relaxed), 400_000);
    }
}
