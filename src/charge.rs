//! One line of a check: who pays how much under which policy.

use std::{borrow::Cow, iter, mem::discriminant};

use crate::{key::Key, policy::Policy, quota::Quota};

/// One line of a check: `cost` units to a key under a policy, as its quota was when the charge
/// was made.
///
/// Made by [`Policy::charge`]. It borrows the policy, so that checks of one policy on many threads
/// share nothing; [`into_owned`](Self::into_owned) ends that.
#[derive(Debug, Clone)]
pub struct Charge<'p> {
    policy: Cow<'p, Policy>,
    key: Key,
    quota: Quota,
    cost: u64,
    most: u64,
    shadow: bool,
    on_failure: OnFailure,
}

/// What becomes of a request when the store cannot answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnFailure {
    /// The request goes on unlimited: the default, because a limiter must not take down what it
    /// protects.
    #[default]
    Allow,
    /// The request is refused: 503 with the problem type `temporary-reduced-capacity`.
    Deny,
}

impl<'p> Charge<'p> {
    #[inline]
    pub(crate) fn new(policy: &'p Policy, key: Key, cost: u64) -> Self {
        Self {
            policy: Cow::Borrowed(policy),
            key,
            quota: policy.quota(),
            cost,
            most: cost,
            shadow: false,
            on_failure: OnFailure::default(),
        }
    }

    /// Takes as many units as are free, from `cost` to `most`: for work in batches.
    /// [`Outcome::granted`](crate::Outcome::granted) says how many.
    #[must_use]
    pub fn up_to(mut self, most: u64) -> Self {
        self.most = most.max(self.cost);
        self
    }

    /// A trial: decided and reported, but it never denies. It is spent only if it passes and the
    /// check is admitted.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// What becomes of the request when the store cannot answer.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// The same charge, owning its policy handle.
    #[must_use]
    pub fn into_owned(self) -> Charge<'static> {
        Charge { policy: Cow::Owned(self.policy.into_owned()), ..self }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Who is charged.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The policy's quota when the charge was made.
    #[must_use]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Units, at least.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Units, at most.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Whether this is a trial.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// What becomes of the request when the store cannot answer.
    #[must_use]
    pub fn failure_mode(&self) -> OnFailure {
        self.on_failure
    }

    /// Whether both draw on the same standing in the same way, so that they are decided as one.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.key == other.key && self.shadow == other.shadow && self.policy == other.policy
    }

    /// Adds the units of an equal charge.
    pub(crate) fn add(&mut self, other: &Self) {
        self.cost = self.cost.saturating_add(other.cost);
        self.most = self.most.saturating_add(other.most);
    }

    /// The policy's quota now, as far as it still counts what this charge was counted by.
    pub(crate) fn quota_in_force(&self) -> Quota {
        let quota = self.policy.quota();
        let same = discriminant(&quota.counted_by()) == discriminant(&self.quota.counted_by());
        if same { quota } else { self.quota }
    }

    /// The same charge for another number of units, under the quota in force.
    pub(crate) fn again(self, cost: u64) -> Self {
        Self { quota: self.quota_in_force(), cost, most: cost, ..self }
    }
}

/// A single charge is a check of one line.
impl<'p> IntoIterator for Charge<'p> {
    type Item = Self;
    type IntoIter = iter::Once<Self>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        iter::once(self)
    }
}
