//! The counts of the keys of each policy.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use plimsoll::Key;

use super::sketch::Sketch;

/// The counts of all policies, in the order of their names. Readers share no lock, because all requests of
/// a process read them.
#[derive(Debug, Default)]
pub(super) struct PolicyCounts(ArcSwap<Vec<Arc<OfPolicy>>>);

#[derive(Debug)]
struct OfPolicy {
    name: String,
    counts: Mutex<Counts>,
}

/// The counts of the keys of a policy.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) denied: Sketch,
    pub(super) spent: Sketch,
    /// The minute of the last halving.
    minute: u64,
}

impl PolicyCounts {
    /// Passes the counts of a policy to a closure. Returns `None` if there are none.
    pub(super) fn with<R>(&self, policy: &str, call: impl FnOnce(&mut Counts) -> R) -> Option<R> {
        let policies = self.0.load();
        let place = policies.binary_search_by(|it| it.name.as_str().cmp(policy)).ok()?;
        let mut counts = policies[place].counts.lock().unwrap_or_else(PoisonError::into_inner);
        Some(call(&mut counts))
    }

    /// Adds the counts of a policy, unless it has some, or `max` others have some.
    pub(super) fn add(&self, policy: &str, max: usize, counts: impl Fn() -> Counts) {
        if self.0.load().len() >= max {
            return;
        }
        self.0.rcu(|policies| {
            let mut policies = policies.to_vec();
            let found = policies.binary_search_by(|it| it.name.as_str().cmp(policy));
            if let Err(place) = found
                && policies.len() < max
            {
                let (name, counts) = (policy.to_owned(), Mutex::new(counts()));
                policies.insert(place, Arc::new(OfPolicy { name, counts }));
            }
            policies
        });
    }

    /// Returns the names of all policies that have counts.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.load().iter().map(|it| it.name.clone()).collect()
    }
}

impl Counts {
    pub(super) fn new(capacity: usize, minute: u64) -> Self {
        Self { denied: Sketch::new(capacity), spent: Sketch::new(capacity), minute }
    }

    /// Halves the counts once for each minute since the last halving.
    pub(super) fn halve_until(&mut self, minute: u64) {
        // After the clock was set back, the counts stay until it has caught up.
        let times = minute.saturating_sub(self.minute);
        if times > 0 {
            self.denied.halve(times);
            self.spent.halve(times);
            self.minute = minute;
        }
    }

    /// Returns the denials and the units of each key.
    pub(super) fn by_key(&self) -> HashMap<Key, (u64, u64)> {
        let mut by_key = HashMap::<Key, (u64, u64)>::new();
        self.denied.counts().for_each(|(key, count)| by_key.entry(*key).or_default().0 = count);
        self.spent.counts().for_each(|(key, count)| by_key.entry(*key).or_default().1 = count);
        by_key
    }
}
