//! The limits of a configuration, and the search for the limit of a descriptor.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use plimsoll::{Key, Policy};
use smallvec::SmallVec;

use super::{
    pattern::Pattern,
    rule::{Counted, DeniedHits, Limit, Rule},
};
use crate::envoy::stats::RuleStats;

/// The number of entries for which the search needs no allocation.
const USUAL_ENTRIES: usize = 4;

/// The limits by [domain](Domain).
#[derive(Debug)]
pub(in crate::envoy) struct Tree {
    pub(super) domains: HashMap<Box<str>, Arc<Domain>>,
    /// The [domains](Domain) that no file has any more.
    pub(super) kept: BTreeSet<Box<str>>,
}

/// The limits of a domain.
#[derive(Debug)]
pub(in crate::envoy) struct Domain {
    pub(super) root: Node,
    /// True if a file has a list of its descriptors, which may be empty.
    pub(super) has_list: bool,
    /// The [policy](Policy) under which the limits are counted that requests bring along.
    pub(in crate::envoy) overrides: Policy,
    pub(in crate::envoy) denied_overrides: DeniedHits,
    pub(in crate::envoy) override_stats: OnceLock<RuleStats>,
}

/// A level of descriptors.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The next level, by `key` and by `key_value`.
    pub(super) children: HashMap<Box<str>, Node>,
    /// The names in `children` that have a `*`, in the order of the file.
    pub(super) patterns: Vec<(Pattern, Box<str>)>,
    pub(super) rule: Option<Rule>,
    pub(super) shares_threshold: bool,
}

impl Tree {
    /// Creates the tree of the domains of files. It keeps the limits of the tree before whose domains the files do not
    /// have, or have without a list of descriptors, as a file that is half written does.
    pub(super) fn new(domains: HashMap<Box<str>, Domain>, before: Option<&Self>) -> Self {
        let domains = domains.into_iter().map(|(name, domain)| (name, Arc::new(domain)));
        let mut tree = Self { domains: domains.collect(), kept: BTreeSet::new() };
        for (name, domain) in before.iter().flat_map(|before| &before.domains) {
            let had_limits = !domain.root.children.is_empty();
            let new = tree.domains.get(name);
            if !new.is_some_and(|new| new.has_list || !had_limits) {
                tree.domains.insert(name.clone(), Arc::clone(domain));
                tree.kept.insert(name.clone());
            }
        }
        tree
    }

    /// Returns the domain of this name.
    pub(in crate::envoy) fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name).map(|domain| &**domain)
    }

    /// Returns the limits that a store counts.
    pub(super) fn counted(&self) -> Vec<&Counted> {
        let mut counted = Vec::new();
        self.domains.values().for_each(|domain| domain.root.add_counted(&mut counted));
        counted
    }
}

impl Domain {
    /// Creates a domain without limits.
    pub(super) fn new(overrides: Policy) -> Self {
        Self {
            root: Node::default(),
            has_list: false,
            overrides,
            denied_overrides: DeniedHits::new(None),
            override_stats: OnceLock::new(),
        }
    }

    /// Returns the limit of a descriptor and the key of its budget. It is the limit of the last entry, if each
    /// entry has a match at its level.
    pub(in crate::envoy) fn find(&self, entries: &[Entry]) -> Option<(&Rule, Key)> {
        let mut node = &self.root;
        let mut values: SmallVec<[(&str, &str); USUAL_ENTRIES]> = SmallVec::new();
        let mut name = String::with_capacity(64);
        for entry in entries {
            let (next, shared) = node.step(entry, &mut name)?;
            values.push((&*entry.key, shared.unwrap_or(&*entry.value)));
            node = next;
        }
        Some((node.rule.as_ref()?, budget_key(values.into_iter())))
    }
}

impl Node {
    fn add_counted<'t>(&'t self, counted: &mut Vec<&'t Counted>) {
        if let Some(Rule { limit: Limit::Counted(limit), .. }) = &self.rule {
            counted.push(limit);
        }
        self.children.values().for_each(|child| child.add_counted(counted));
    }

    /// Returns the match of an entry: by key and value, by the first [pattern](Pattern), or by the key. Also
    /// returns the part of a pattern behind the key, if its values share one budget. `name` is memory to reuse.
    fn step(&self, entry: &Entry, name: &mut String) -> Option<(&Self, Option<&str>)> {
        name.clear();
        name.extend([&*entry.key, "_", &entry.value]);
        if let Some(node) = self.children.get(&**name) {
            return Some((node, None));
        }
        if let Some((_, pattern)) = self.patterns.iter().find(|(it, _)| it.matches(name)) {
            let node = self.children.get(pattern)?;
            let value = pattern.strip_prefix(&name[..=entry.key.len()]).unwrap_or(pattern);
            return Some((node, node.shares_threshold.then_some(value)));
        }
        self.children.get(&*entry.key).map(|node| (node, None))
    }
}

/// Returns the key of the budget of some keys and values. Different ones have different keys.
pub(in crate::envoy) fn budget_key<'v>(values: impl Iterator<Item = (&'v str, &'v str)>) -> Key {
    let mut text = Vec::with_capacity(64);
    for (index, (key, value)) in values.enumerate() {
        if index > 0 {
            text.push(b',');
        }
        for (part, sign) in [(key, Some(b'=')), (value, None)] {
            for byte in part.bytes() {
                if matches!(byte, b',' | b'=' | b'\\') {
                    text.push(b'\\');
                }
                text.push(byte);
            }
            text.extend(sign);
        }
    }
    Key::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_entries_have_different_budgets() {
        let key = |values: &[(&'static str, &'static str)]| budget_key(values.iter().copied());
        assert_eq!(key(&[("user", "alice")]).reveal(), b"user=alice");
        assert_eq!(key(&[("a", "b"), ("c", "")]).reveal(), b"a=b,c=");
        assert_ne!(key(&[("a", "b,c=d")]), key(&[("a", "b"), ("c", "d")]));
        assert_ne!(key(&[("a=b", "c")]), key(&[("a", "b=c")]));
    }
}
