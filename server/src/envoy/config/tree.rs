//! The limits of a configuration, and the search for the limit of a descriptor.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use plimsoll::{Key, Policy};
use smallvec::SmallVec;

use super::{
    pattern::Pattern,
    rule::{DeniedHits, Rule},
};
use crate::envoy::metric_key::MetricKey;

/// The number of entries for which the search needs no allocation.
const USUAL_ENTRIES: usize = 4;

/// The limits by domain.
#[derive(Debug)]
pub(in crate::envoy) struct Tree {
    pub(super) domains: HashMap<Box<str>, Arc<Domain>>,
    /// The domains that no file has any more.
    pub(super) kept: BTreeSet<Box<str>>,
}

/// The limits of a domain.
#[derive(Debug)]
pub(in crate::envoy) struct Domain {
    pub(super) root: Node,
    /// True if a file has a list of its descriptors, which may be empty.
    pub(super) has_list: bool,
    /// The policy under which the limits are counted that requests bring along.
    pub(in crate::envoy) overrides: Policy,
    pub(in crate::envoy) denied_overrides: DeniedHits,
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
    pub(super) value_to_metric: bool,
}

/// The limit of a descriptor.
#[derive(Debug)]
pub(in crate::envoy) struct Found<'t> {
    pub(in crate::envoy) rule: &'t Rule,
    /// The key of the descriptor's budget.
    pub(in crate::envoy) key: Key,
    /// The name in metrics, if it depends on the descriptor.
    pub(in crate::envoy) metric_key: Option<MetricKey>,
}

/// A match of one entry of a descriptor.
struct Step<'t> {
    node: &'t Node,
    by: By<'t>,
}

enum By<'t> {
    /// The key and the value.
    Value,
    /// A pattern, whose part behind the key is this.
    Pattern(&'t str),
    /// The key alone.
    Key,
}

impl Tree {
    /// Creates the tree of the domains of files. It keeps the limits of the tree before whose domains the files do not
    /// have, or have without a list of descriptors, as a file that is half written does.
    pub(super) fn new(domains: HashMap<Box<str>, Domain>, before: Option<&Self>) -> Self {
        let domains = domains.into_iter().map(|(name, domain)| (name, Arc::new(domain)));
        let mut tree = Self { domains: domains.collect(), kept: BTreeSet::new() };
        for (name, domain) in before.iter().flat_map(|before| &before.domains) {
            let had_limits = !domain.root.children.is_empty();
            let is_there = |new: &Arc<Domain>| new.has_list || !had_limits;
            if !tree.domains.get(name).is_some_and(is_there) {
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

    /// Returns all limits, in the order of the files.
    pub(in crate::envoy) fn rules(&self) -> Vec<&Rule> {
        fn add<'t>(node: &'t Node, rules: &mut Vec<&'t Rule>) {
            rules.extend(&node.rule);
            node.children.values().for_each(|child| add(child, rules));
        }
        let mut rules = Vec::new();
        self.domains.values().for_each(|domain| add(&domain.root, &mut rules));
        rules.sort_by_key(|rule| (&rule.place.file, rule.place.line));
        rules
    }
}

impl Domain {
    /// Creates a domain without limits.
    pub(super) fn new(overrides: Policy) -> Self {
        let denied_overrides = DeniedHits::new(None);
        Self { root: Node::default(), has_list: false, overrides, denied_overrides }
    }

    /// Returns the limit of a descriptor: that of the last entry, if each entry has a match at its level.
    pub(in crate::envoy) fn find<'t>(
        &'t self,
        entries: &[Entry],
        domain: &str,
    ) -> Option<Found<'t>> {
        let mut node = &self.root;
        let mut steps: SmallVec<[Step<'t>; USUAL_ENTRIES]> = SmallVec::new();
        let mut name = String::with_capacity(64);
        for entry in entries {
            let step = node.step(entry, &mut name)?;
            node = step.node;
            steps.push(step);
        }
        let rule = node.rule.as_ref()?;
        let steps = || entries.iter().zip(&steps);
        let is_dynamic = rule.has_detailed_metric
            || steps().any(|(_, step)| {
                step.node.value_to_metric
                    && !matches!(step.by, By::Value)
                    && step.shared().is_none()
            });
        let metric_key = is_dynamic.then(|| metric_key(rule, domain, steps()));
        let values =
            steps().map(|(entry, step)| (&*entry.key, step.shared().unwrap_or(&entry.value)));
        Some(Found { rule, key: budget_key(values), metric_key })
    }
}

impl Node {
    /// Returns the match of an entry: by key and value, by the first pattern, or by the key. `name` is
    /// memory to reuse.
    fn step<'t>(&'t self, entry: &Entry, name: &mut String) -> Option<Step<'t>> {
        name.clear();
        name.extend([&*entry.key, "_", &entry.value]);
        if let Some(node) = self.children.get(&**name) {
            return Some(Step { node, by: By::Value });
        }
        if let Some((_, pattern)) = self.patterns.iter().find(|(it, _)| it.matches(name)) {
            let value = pattern.strip_prefix(&name[..=entry.key.len()]).unwrap_or(pattern);
            return self.children.get(pattern).map(|node| Step { node, by: By::Pattern(value) });
        }
        self.children.get(&*entry.key).map(|node| Step { node, by: By::Key })
    }
}

impl<'t> Step<'t> {
    /// Returns the pattern whose values share one budget.
    fn shared(&self) -> Option<&'t str> {
        match self.by {
            By::Pattern(pattern) if self.node.shares_threshold => Some(pattern),
            _ => None,
        }
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

fn metric_key<'s, 't: 's>(
    rule: &Rule,
    domain: &str,
    steps: impl Iterator<Item = (&'s Entry, &'s Step<'t>)> + Clone,
) -> MetricKey {
    let mut metric_key = MetricKey::new(domain);
    let is_shared = steps.clone().any(|(_, step)| step.shared().is_some());
    for (entry, step) in steps {
        let value = match (step.shared(), &step.by) {
            (Some(pattern), _) => Some(pattern),
            (None, _) if rule.has_detailed_metric => Some(&*entry.value),
            (None, By::Value) => Some(&*entry.value),
            (None, _) if step.node.value_to_metric => Some(&*entry.value),
            (None, By::Pattern(pattern)) => Some(*pattern),
            (None, By::Key) => None,
        };
        let is_whole = rule.has_detailed_metric && !is_shared;
        metric_key.push(match value {
            Some(value) if is_whole || !value.is_empty() => format!("{}_{value}", entry.key),
            _ => entry.key.clone(),
        });
    }
    metric_key
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
