//! The rules of a layer.

use std::ops::Deref;

use http::request::Parts;

use super::{PendingLookups, Rule};
use crate::{
    error::{Error, ErrorKind},
    policy::{Charges, Policy},
};

/// The rules of a layer, which are decided together.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    /// True if a rule needs a lookup.
    need_rows: bool,
}

/// The rules of a layer that apply to one request, as bits. They are found once, because the closures of
/// [`Rule::only`] count the requests that they see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApplicableRules(u32);

const _: () = assert!(Charges::MAX <= u32::BITS as usize, "one bit for each rule");

impl Rules {
    /// Creates the rules of a layer with one rule. The metrics recorder may be younger than its policies, so
    /// their counters are started again.
    pub(crate) fn new(rule: Rule) -> Self {
        rule.start_counters();
        Self { need_rows: rule.resolves(), rules: vec![rule] }
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
        self.need_rows |= rule.resolves();
        self.rules.push(rule);
    }

    /// Makes every rule a shadow.
    pub(crate) fn shadow(&mut self) {
        self.rules = self.rules.drain(..).map(Rule::shadow).collect();
    }

    /// Finds the rules that apply to a request.
    #[inline]
    pub(crate) fn applicable(&self, parts: &Parts) -> ApplicableRules {
        let bit = |(index, rule): (usize, &Rule)| u32::from(rule.applies_to(parts)) << index;
        ApplicableRules(self.rules.iter().enumerate().map(bit).sum())
    }

    /// Returns the rules that were found to apply to a request.
    #[inline]
    pub(crate) fn select(&self, applicable: ApplicableRules) -> impl Iterator<Item = &Rule> {
        let applies = move |index: usize| applicable.0 >> index & 1 == 1;
        self.rules
            .iter()
            .enumerate()
            .filter_map(move |(index, rule)| applies(index).then_some(rule))
    }

    /// Starts the lookups of the rules that apply to a request. Returns the lookups that wait for a load,
    /// if there are any. The rules are applied when these lookups have ended.
    #[inline]
    pub(crate) fn look_up(
        &self,
        applicable: ApplicableRules,
        parts: &mut Parts,
    ) -> Option<PendingLookups> {
        if self.need_rows { self.start_lookups(applicable, parts) } else { None }
    }

    /// Checks that the rows of a request were loaded, as far as the rules that apply to it require it.
    ///
    /// # Errors
    ///
    /// Returns an error if the row of a rule with [`OnFailure::Deny`](crate::OnFailure::Deny) could not be
    /// loaded. The request is then rejected.
    #[inline]
    pub(crate) fn require_rows(
        &self,
        applicable: ApplicableRules,
        parts: &Parts,
    ) -> Result<(), Error> {
        if self.need_rows && self.select(applicable).any(|rule| rule.denies_without_row(parts)) {
            return Err(not_loaded());
        }
        Ok(())
    }

    #[inline(never)]
    fn start_lookups(
        &self,
        applicable: ApplicableRules,
        parts: &mut Parts,
    ) -> Option<PendingLookups> {
        let mut pending = PendingLookups::default();
        for rule in self.select(applicable) {
            rule.look_up(parts, &mut pending);
        }
        (!pending.is_empty()).then_some(pending)
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

#[cold]
fn not_loaded() -> Error {
    Error::new(ErrorKind::LookupFailed, "the row that a rule needs could not be loaded")
        .with_place("lookup")
}
