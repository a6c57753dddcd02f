//! The rates of admitted and denied requests under a policy, for a chart of the last minutes.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use plimsoll::decision::OutcomeKind;

/// The time of one sample.
pub(super) const SAMPLE: Duration = Duration::from_secs(5);

/// The samples that are kept, which cover 10 minutes.
const SAMPLES: usize = 120;

/// The number of counters of a policy.
const KINDS: usize = 3;

/// The number of a sample.
pub(super) type Place = u64;

/// The counters of a policy, and what they were at the end of the last samples.
///
/// No task takes the samples: the first request after the end of a sample does, or the reader.
#[derive(Debug)]
pub(super) struct Rates {
    counts: [AtomicU64; KINDS],
    /// The sample that is being counted.
    place: AtomicU64,
    /// The counters at the beginning of each sample. The sample `place` is at the end.
    totals: Mutex<VecDeque<[u64; KINDS]>>,
}

/// The requests of each sample, the oldest first. The last one is not over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Samples {
    pub(super) allowed: Vec<u64>,
    pub(super) denied: Vec<u64>,
    /// Requests that a shadow or a trial would have denied.
    pub(super) would_deny: Vec<u64>,
}

/// Returns the number of the sample at a time since the start.
pub(super) fn place(elapsed: Duration) -> Place {
    elapsed.as_secs() / SAMPLE.as_secs()
}

impl Rates {
    /// Creates counters whose first sample has this number.
    pub(super) fn new(place: Place) -> Self {
        let totals = Mutex::new(VecDeque::from([[0; KINDS]]));
        Self { counts: Default::default(), place: AtomicU64::new(place), totals }
    }

    /// Counts an outcome.
    pub(super) fn record(&self, kind: OutcomeKind, now: Place) {
        let index = match kind {
            OutcomeKind::Allowed | OutcomeKind::WouldAllow => 0,
            OutcomeKind::Denied => 1,
            OutcomeKind::WouldDeny => 2,
            // Another policy has refused the request.
            _ => return,
        };
        if self.place.load(Ordering::Relaxed) < now {
            self.advance(now);
        }
        self.counts[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the requests of the last samples.
    pub(super) fn samples(&self, now: Place) -> Samples {
        self.advance(now);
        let totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = totals.iter().skip(1).copied().chain([self.now()]);
        let counts: Vec<[u64; KINDS]> = totals
            .iter()
            .zip(ends)
            .map(|(start, end)| std::array::from_fn(|kind| end[kind].saturating_sub(start[kind])))
            .collect();
        let of = |kind: usize| counts.iter().map(|it| it[kind]).collect();
        Samples { allowed: of(0), denied: of(1), would_deny: of(2) }
    }

    /// Ends the samples before this one.
    fn advance(&self, now: Place) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = now.saturating_sub(self.place.load(Ordering::Relaxed));
        let total = self.now();
        for _ in 0..ended.min(SAMPLES as u64) {
            if totals.len() == SAMPLES {
                totals.pop_front();
            }
            totals.push_back(total);
        }
        self.place.fetch_max(now, Ordering::Relaxed);
    }

    fn now(&self) -> [u64; KINDS] {
        std::array::from_fn(|kind| self.counts[kind].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_has_the_requests_of_its_time() {
        let rates = Rates::new(7);
        rates.record(OutcomeKind::Allowed, 7);
        rates.record(OutcomeKind::Denied, 7);
        rates.record(OutcomeKind::NotCharged, 7);
        rates.record(OutcomeKind::WouldDeny, 9);
        let Samples { allowed, denied, would_deny } = rates.samples(10);
        assert_eq!(allowed, [1, 0, 0, 0]);
        assert_eq!(denied, [1, 0, 0, 0]);
        assert_eq!(would_deny, [0, 0, 1, 0]);

        rates.record(OutcomeKind::Allowed, 1_000_000);
        let Samples { allowed, denied, .. } = rates.samples(1_000_000);
        assert_eq!((allowed.len(), denied.iter().sum::<u64>()), (SAMPLES, 0));
        assert_eq!(allowed.last(), Some(&1));
    }
}
