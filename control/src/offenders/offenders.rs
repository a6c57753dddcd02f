//! The handle to the offenders of a process.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use plimsoll::{
    Decision, Key,
    clock::{Clock, SystemClock},
    store::Verdict,
};

use super::{
    Offender, OffenderOrder,
    policy_counts::{PolicyCounts, Totals, with_counts},
    sample::{COUNTED, SAMPLE, weight},
};
use crate::overrides::digest;

/// The keys that are denied most and that spend most, by policy, and the units that each policy has admitted and denied.
/// Clones share the counts.
///
/// The units of a policy are counted exactly, since the start: the units that an admitted check has charged, and the
/// units that a denied charge asked for. Refunds are not subtracted.
/// [`Overrides::publish`](crate::Overrides::publish) shows them to the other instances.
///
/// The counts of keys are halved each minute, so they tell of the last one to two minutes:
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
    /// Another number for each value of this type.
    number: u64,
    capacity: usize,
    clock: Arc<dyn Clock>,
    policies: RwLock<HashMap<String, Arc<PolicyCounts>>>,
}

impl Offenders {
    /// One in so many admitted checks is counted, and one in so many denials of a flood.
    pub const SAMPLE: u64 = SAMPLE;

    /// The denials of one thread in 66 ms that are all counted.
    pub const COUNTED: u64 = COUNTED;

    /// The maximum number of policies that are counted.
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
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let kept = Arc::new(Kept {
            number: NEXT.fetch_add(1, Relaxed),
            capacity: capacity.clamp(1, 10_000),
            clock: Arc::new(clock),
            policies: RwLock::default(),
        });
        Self { kept, shows_keys: false }
    }

    /// Returns a handle that shows keys in the clear, as [`Key::display_revealed`] prints them. Clones
    /// of it do so too, and other handles do not: they show a digest such as `#1f2e3d4c`.
    #[must_use]
    pub fn show_keys(self) -> Self {
        Self { shows_keys: true, ..self }
    }

    /// Counts a [decision](Decision). Call it from
    /// [`RateLimitLayer::on_decision`](plimsoll::RateLimitLayer::on_decision).
    pub fn record(&self, decision: &Decision<'_>) {
        let weight = weight(decision);
        for outcome in decision.outcomes() {
            let charge = outcome.charge();
            if !charge.is_live() {
                continue;
            }
            let admitted = outcome.granted();
            let is_denied = outcome.verdict() != Verdict::Passed;
            let denied = if is_denied { charge.cost() } else { 0 };
            let name = charge.policy().name();
            with_counts(
                name,
                self.kept.number,
                || self.counts(name),
                |counts, part| {
                    counts.add(part, admitted, denied);
                    let Some(weight) = weight else { return };
                    let mut keys = counts.keys(self.minute());
                    if is_denied {
                        keys.denied.add(charge.key(), weight);
                    } else if admitted > 0 {
                        keys.spent.add(charge.key(), admitted.saturating_mul(weight));
                    }
                },
            );
        }
    }

    /// Returns the first keys of a policy in this [order](OffenderOrder).
    #[must_use]
    pub fn top(&self, policy: &str, count: usize, order: OffenderOrder) -> Vec<Offender> {
        let policies = self.kept.policies.read().unwrap_or_else(PoisonError::into_inner);
        let Some(counts) = policies.get(policy).cloned() else { return Vec::new() };
        drop(policies);
        let mut by_key = HashMap::<Key, (u64, u64)>::new();
        let counts = counts.keys(self.minute());
        counts.denied.counts().for_each(|(key, count)| by_key.entry(*key).or_default().0 = count);
        counts.spent.counts().for_each(|(key, count)| by_key.entry(*key).or_default().1 = count);
        drop(counts);
        let by_key = by_key.into_iter();
        let offenders =
            by_key.map(|(key, (denied, spent))| Offender { key: self.shown(&key), denied, spent });
        order.first(offenders.collect(), count)
    }

    /// Returns the units of each policy since the start, by its name.
    pub(crate) fn totals(&self) -> BTreeMap<String, Totals> {
        let policies = self.kept.policies.read().unwrap_or_else(PoisonError::into_inner);
        policies.iter().map(|(policy, counts)| (policy.clone(), counts.totals())).collect()
    }

    /// Returns the counts of a policy, or `None` if there are [`MAX_POLICIES`](Self::MAX_POLICIES) others.
    fn counts(&self, policy: &str) -> Option<Arc<PolicyCounts>> {
        let policies = self.kept.policies.read().unwrap_or_else(PoisonError::into_inner);
        let known = policies.get(policy).cloned();
        if known.is_some() || policies.len() >= Self::MAX_POLICIES {
            return known;
        }
        drop(policies);
        let mut policies = self.kept.policies.write().unwrap_or_else(PoisonError::into_inner);
        if policies.len() >= Self::MAX_POLICIES && !policies.contains_key(policy) {
            return None;
        }
        let Kept { number, capacity, .. } = *self.kept;
        let counts = policies.entry(policy.to_owned()).or_insert_with(|| {
            Arc::new(PolicyCounts::new(policy, number, capacity, self.minute()))
        });
        Some(Arc::clone(counts))
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

#[cfg(test)]
mod tests {
    use std::thread;

    use plimsoll::{Limiter, Policy, clock::ManualClock};

    use super::*;

    #[test]
    fn each_policy_has_one_count_until_all_places_are_taken() {
        let clock = ManualClock::at(60_000_000);
        let (offenders, limiter) = (Offenders::with_clock(1, clock), Limiter::in_memory());
        let deny = |number: usize| {
            let policy = Policy::new(&format!("policy-{number}"), "1/min").unwrap();
            for _ in 0..2 {
                offenders.record(&limiter.check_now(policy.charge("alice", 1)).unwrap());
            }
        };
        let numbers = Offenders::MAX_POLICIES + 10;
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..60).for_each(deny));
            }
        });
        (60..numbers).for_each(deny);
        let top = |number: usize| {
            let policy = format!("policy-{number}");
            offenders.top(&policy, 1, OffenderOrder::Denied).first().map(|it| it.denied)
        };
        // Two policies of the same name are the same counts.
        assert!((0..60).all(|number| top(number) == Some(7)));
        assert_eq!((top(60), top(numbers - 1)), (Some(1), None));
        assert_eq!((0..numbers).filter(|it| top(*it).is_some()).count(), Offenders::MAX_POLICIES);
    }
}
