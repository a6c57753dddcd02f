//! The rules of a layer.

use std::ops::Deref;

use http::request::Parts;

use super::Rule;
use crate::policy::{Charges, Policy};

/// The rules of a layer, which are decided together.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Creates the rules of a layer with one rule. The metrics recorder may be younger than its policies, so
    /// their counters are started again.
    pub(crate) fn new(rule: Rule) -> Self {
        rule.start_counters();
        Self { rules: vec![rule] }
    }

    /// Adds a rule, as [`new`](Self::new) does.
    ///
    /// # Panics
    ///
    /// Panics if the rules and their [trials](Rule::trial) are more than [`Charges::MAX`], or if another rule
    /// has another policy of the same name.
    #[track_caller]
    pub(crate) fn push(&mut self, rule: Rule) {
        let lines: usize = self.rules.iter().chain([&rule]).map(Rule::lines).sum();
        assert!(lines <= Charges::MAX, "a layer has at most {} rules", Charges::MAX);
        for policy in rule.policies() {
            let mut others = self.rules.iter().flat_map(Rule::policies);
            if let Some(other) = others.find(|it| *it == policy && !it.is_clone_of(policy)) {
                two_limits(other, policy);
            }
        }
        rule.start_counters();
        self.rules.push(rule);
    }

    /// Makes every rule a shadow.
    pub(crate) fn shadow(&mut self) {
        self.rules = self.rules.drain(..).map(Rule::shadow).collect();
    }

    /// Returns the rules that apply to a request. The caller asks once, because the closures of [`Rule::only`]
    /// count the requests that they see.
    #[inline]
    pub(crate) fn applicable(&self, parts: &Parts) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.applies_to(parts))
    }
}

impl Deref for Rules {
    type Target = [Rule];

    #[inline]
    fn deref(&self) -> &[Rule] {
        &self.rules
    }
}

#[cold]
#[track_caller]
fn two_limits(one: &Policy, other: &Policy) -> ! {
    panic!(
        "a layer has two policies named {:?} ({} and {}), allowed is one: give each limit a name of its own, \
         or use clones of one policy",
        one.name(),
        one.quota(),
        other.quota()
    )
}
