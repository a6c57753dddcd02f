//! A table of costs by route.

use std::{collections::HashMap, panic::Location};

use http::request::Parts;

use super::{entry::RouteEntry, has_other_spelling, names::Names};
use crate::telemetry::RouteWatch;

/// The costs of routes in units.
#[derive(Debug)]
pub(crate) struct Costs {
    entries: Vec<(RouteEntry, u64)>,
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
            entries.push((RouteEntry::parse(text), cost));
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
        let may_be_respelled = names.has_spellings() && has_other_spelling(parts);
        if may_be_respelled { self.respelled(cost, &names, parts) } else { cost }
    }

    /// Returns the index of the entry of a request. The most specific name decides: its path, then
    /// its route.
    fn find(&self, names: &Names<'_>, parts: &Parts) -> Option<usize> {
        names.each().find_map(|name| {
            self.by_path.get(name.text)?.iter().copied().find(|index| {
                let entry = &self.entries[*index].0;
                entry.covers(parts) && entry.is(name)
            })
        })
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
