//! The handle to the offenders of a process.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use plimsoll::{
    Decision, Key,
    clock::{Clock, SystemClock},
    decision::OutcomeKind,
};
use tokio::{task::AbortHandle, time::sleep};

use super::{
    Offender, OffenderOrder,
    counts::Counts,
    fleet::{Fleet, LASTS, Report},
    sample::{COUNTED, SAMPLE, weight},
};
use crate::{OverrideError, Overrides, by_name::ByName, overrides::digest};

/// The keys that are denied most and that spend most, by policy. Clones share the counts.
///
/// Counts are halved each minute, so they tell of the last one to two minutes:
///
/// - A thread counts each of its first [`COUNTED`](Self::COUNTED) denials in 66 ms, which is 3,900 a second. Of
///   more denials in that time, one in [`SAMPLE`](Self::SAMPLE) is picked at random and counts as so many. So an
///   attack costs little, and the denials of a key are then an estimate.
/// - Of the admitted checks, one in [`SAMPLE`](Self::SAMPLE) is picked at random and counts as so many. The units
///   of a key are an estimate.
///
/// The memory is bounded: for each of at most [`MAX_POLICIES`](Self::MAX_POLICIES) policies, it has room
/// for as many keys as `capacity` says, however many there are.
///
/// ```
/// use plimsoll::{Limiter, Policy, RateLimitLayer, Rule, by};
/// use plimsoll_control::{OffenderOrder, Offenders};
///
/// let offenders = Offenders::new(100).show_keys();
/// let limiter = Limiter::in_memory();
/// let policy = Policy::new("api", "1/min")?;
/// let rule = Rule::new(policy.clone(), by::header("x-api-key"));
/// let layer = RateLimitLayer::new(limiter.clone(), rule).on_decision({
///     let offenders = offenders.clone();
///     move |decision, _| offenders.record(decision)
/// });
///
/// for _ in 0..4 {
///     offenders.record(&limiter.check_now(policy.charge("mallory", 1))?);
/// }
/// let top = offenders.top("api", 10, OffenderOrder::Denied);
/// assert_eq!((top[0].key.as_str(), top[0].denied), ("mallory", 3));
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Offenders {
    kept: Arc<Kept>,
    shows_keys: bool,
}

#[derive(Debug)]
struct Kept {
    capacity: usize,
    clock: Arc<dyn Clock>,
    policies: ByName<Mutex<Counts>>,
    reporter: OnceLock<Reporter>,
}

/// The place to which the counts are reported, and the task that does it.
#[derive(Debug)]
struct Reporter {
    fleet: Fleet,
    task: AbortHandle,
}

/// The number of keys of a policy that a process reports in each order.
const REPORTED: usize = 50;

impl Offenders {
    /// One in so many admitted checks is counted, and one in so many denials of a flood.
    pub const SAMPLE: u64 = SAMPLE;

    /// The denials of one thread in 66 ms that are all counted.
    pub const COUNTED: u64 = COUNTED;

    /// The maximum number of policies whose keys are counted.
    pub const MAX_POLICIES: usize = 256;

    /// Creates counts with room for `capacity` keys of each policy, from 1 to 10,000. A key is found if it
    /// has more than one in `capacity` of the denials or units of its policy.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::with_clock(capacity, SystemClock::new())
    }

    /// Creates counts that are halved by this clock.
    #[must_use]
    pub fn with_clock(capacity: usize, clock: impl Clock) -> Self {
        let kept = Arc::new(Kept {
            capacity: capacity.clamp(1, 10_000),
            clock: Arc::new(clock),
            policies: ByName::new(Self::MAX_POLICIES),
            reporter: OnceLock::new(),
        });
        Self { kept, shows_keys: false }
    }

    /// Returns a handle that shows and reports keys in the clear, as [`Key::display_revealed`] prints them. Clones
    /// of it do so too, and other handles do not: they show a digest such as `#1f2e3d4c`.
    #[must_use]
    pub fn show_keys(self) -> Self {
        Self { shows_keys: true, ..self }
    }

    /// Counts a decision. Call it from
    /// [`RateLimitLayer::on_decision`](plimsoll::RateLimitLayer::on_decision).
    #[inline]
    pub fn record(&self, decision: &Decision<'_>) {
        if let Some(weight) = weight(decision) {
            self.count(decision, weight);
        }
    }

    /// Returns the first keys of a policy in this order.
    #[must_use]
    pub fn top(&self, policy: &str, count: usize, order: OffenderOrder) -> Vec<Offender> {
        order.first(self.offenders(policy), count)
    }

    /// Reports the keys of this process to Redis every 5 s, beside these overrides, so that all processes of
    /// the service can sum them. A report has the first 50 keys of each policy in both orders. It counts for
    /// 15 s. Does nothing if the overrides are in memory, or if it was called before.
    ///
    /// The processes of a service should agree about [`show_keys`](Self::show_keys): a digest and a key in the
    /// clear are not summed.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn share(&self, overrides: &Overrides) {
        self.kept.reporter.get_or_init(|| {
            let task =
                tokio::spawn(report(Arc::downgrade(&self.kept), self.shows_keys)).abort_handle();
            Reporter { fleet: Fleet::new(overrides), task }
        });
    }

    /// Returns the first keys of a policy in this order, summed over all processes that [share](Self::share) their
    /// counts. The counts of the others are up to 1 s older than their reports, because all callers share what was
    /// read.
    ///
    /// # Errors
    ///
    /// Returns an error if Redis does not answer.
    pub async fn top_of_fleet(
        &self,
        policy: &str,
        count: usize,
        order: OffenderOrder,
    ) -> Result<Vec<Offender>, OverrideError> {
        let mut offenders = self.offenders(policy);
        if let Some(reporter) = self.kept.reporter.get() {
            offenders = reporter.fleet.add_others(policy, offenders).await?;
        }
        Ok(order.first(offenders, count))
    }

    /// Counts a decision that stands for `weight` of them.
    #[inline(never)]
    fn count(&self, decision: &Decision<'_>, weight: u64) {
        let minute = self.minute();
        for outcome in decision.outcomes() {
            let (denied, spent) = match outcome.kind() {
                OutcomeKind::Denied => (weight, 0),
                OutcomeKind::Allowed => (0, outcome.granted().saturating_mul(weight)),
                _ => continue,
            };
            let new = || Mutex::new(Counts::new(self.kept.capacity, minute));
            self.kept.policies.with(outcome.charge().policy().name(), new, |counts| {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                counts.halve_until(minute);
                let key = outcome.charge().key();
                if denied > 0 {
                    counts.denied.add(key, denied);
                } else if spent > 0 {
                    counts.spent.add(key, spent);
                }
            });
        }
    }

    /// Returns all keys of a policy that have counts.
    fn offenders(&self, policy: &str) -> Vec<Offender> {
        let minute = self.minute();
        let by_key = self.kept.policies.get(policy).map(|counts| {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.halve_until(minute);
            counts.by_key()
        });
        let offender = |(key, (denied, spent))| Offender { key: self.shown(&key), denied, spent };
        by_key.into_iter().flatten().map(offender).collect()
    }

    /// Returns what this process reports: of each policy the keys that are denied most, and of the others
    /// those that spend most.
    fn report(&self) -> Report {
        let of_policy = |name: &str| {
            let all = self.offenders(name);
            let mut reported = OffenderOrder::Denied.first(all, usize::MAX);
            let others = reported.split_off(REPORTED.min(reported.len()));
            reported.extend(OffenderOrder::Spent.first(others, REPORTED));
            (name.to_owned(), reported)
        };
        let policies = self.kept.policies.all();
        let of_policies = policies.keys().map(|name| of_policy(name));
        of_policies.filter(|(_, reported)| !reported.is_empty()).collect()
    }

    fn minute(&self) -> u64 {
        self.kept.clock.now().as_micros() / 60_000_000
    }

    fn shown(&self, key: &Key) -> String {
        if self.shows_keys {
            return key.display_revealed().to_string();
        }
        digest(key)
    }
}

/// Reports the counts until their handles are dropped.
async fn report(kept: Weak<Kept>, shows_keys: bool) {
    loop {
        sleep(LASTS / 3).await;
        let Some(kept) = kept.upgrade() else { return };
        let offenders = Offenders { kept, shows_keys };
        let report = offenders.report();
        if let Some(reporter) = offenders.kept.reporter.get().filter(|_| !report.is_empty()) {
            // The next report has the same counts.
            let _ = reporter.fleet.report(&report).await;
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use plimsoll::{Limiter, Policy};

    use super::*;

    #[test]
    fn a_key_is_in_a_report_once_while_it_is_counted() {
        let (offenders, is_done) = (Offenders::new(100), AtomicBool::new(false));
        let (policy, limiter) = (Policy::new("api", "1/min").unwrap(), Limiter::in_memory());
        let deny = |key: u64| {
            offenders.record(&limiter.check_now(policy.charge(key, 2)).unwrap());
        };
        (0..80).for_each(deny);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    (0..80).for_each(deny);
                }
            });
            let reports: Vec<_> = (0..1_000).map(|_| offenders.report()).collect();
            is_done.store(true, Ordering::Relaxed);
            for report in reports {
                let keys: HashSet<_> = report["api"].iter().map(|it| &it.key).collect();
                assert_eq!(keys.len(), report["api"].len());
            }
        });
    }
}
