//! A table of costs by route.

use std::{collections::HashMap, panic::Location};

use http::request::Parts;

use super::{entry::Entry, names::Names};
use crate::telemetry::RouteWatch;

/// The costs of routes in units.
#[derive(Debug)]
pub(crate) struct Costs {
    entries: Vec<(Entry, u64)>,
    /// The indices of the entries with a path. Those with a method come first, because they take
    /// precedence over those for any method.
    by_path: HashMap<Box<str>, Vec<usize>>,
    otherwise: u64,
    watch: RouteWatch,
}

impl Costs {
    #[track_caller]
    pub(crate) fn new<'r>(
        costs: impl IntoIterator<Item = (&'r str, u64)>,
        otherwise: u64,
        used_by: &'static str,
    ) -> Self {
        let at = Location::caller();
        // A closure would not pass on the location of the caller, so this is a loop.
        let mut entries = Vec::new();
        for (text, cost) in costs {
            entries.push((Entry::parse(text), cost));
        }
        let mut by_path: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, (entry, _)) in entries.iter().enumerate() {
            by_path.entry(entry.path.clone()).or_default().push(index);
        }
        let any_method = |index: &usize| entries[*index].0.method.is_none();
        by_path.values_mut().for_each(|indices| indices.sort_by_key(any_method));
        let watch = RouteWatch::new(used_by, at, entries.iter().map(|(entry, _)| &*entry.text));
        Self { entries, by_path, otherwise, watch }
    }

    /// Returns the cost of a request.
    pub(crate) fn of(&self, parts: &Parts) -> u64 {
        let names = Names::of(parts);
        let found = self.find(&names, parts);
        self.watch.observe(found, || names.pattern);
        let cost = found.map_or(self.otherwise, |index| self.entries[index].1);
        if names.may_be_respelled() { self.respelled(cost, &names, parts) } else { cost }
    }

    /// Returns the index of the entry of a request. The most specific name decides: its path, then
    /// its route.
    fn find(&self, names: &Names<'_>, parts: &Parts) -> Option<usize> {
        let of = |name: &str, is_path: bool| {
            self.by_path.get(name)?.iter().copied().find(|index| {
                let entry = &self.entries[*index].0;
                entry.covers(parts) && !(is_path && entry.is_pattern)
            })
        };
        let inner_path = names.is_nested().then_some(names.inner_path);
        // A pattern equals the path if it has no parameter, or if a client writes `{id}` into its path.
        let is_other = |pattern: &&str| *pattern != names.path || pattern.contains('{');
        let pattern = names.pattern.filter(is_other);
        of(names.path, true)
            .or_else(|| of(inner_path?, true))
            .or_else(|| of(pattern?, false))
            .or_else(|| of(names.inner_pattern?, false))
    }

    /// Returns the cost of a request whose path has another spelling: at least `cost`, so that a
    /// client cannot choose a lower one.
    #[cold]
    fn respelled(&self, cost: u64, names: &Names<'_>, parts: &Parts) -> u64 {
        let others =
            self.entries.iter().filter(|(it, _)| it.covers(parts) && it.is_respelled(names));
        others.map(|(_, cost)| *cost).fold(cost, u64::max)
    }
}
