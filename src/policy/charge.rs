//! One line of a check: who pays how much under which policy.

use std::{
    borrow::Cow,
    iter,
    mem::{self, discriminant},
    ops::Deref,
    option, slice, vec,
};

use crate::{error::Error, key::Key, policy::Policy, quota::Quota};

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
    /// The charge is against one of so many equal parts of the policy's quota.
    parts: u32,
}

/// What becomes of a request when the store cannot answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnFailure {
    /// This process decides by itself, under its share of the limit (see
    /// [`Resilience::instances`](crate::store::Resilience::instances)): the default. Where nothing
    /// falls back, as [`Allow`](Self::Allow).
    #[default]
    Local,
    /// The request goes on unlimited: this charge must not take down what it protects.
    Allow,
    /// The request is refused: 503 with the problem type `temporary-reduced-capacity`.
    Deny,
}

impl OnFailure {
    fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Deny, _) | (_, Self::Deny) => Self::Deny,
            (Self::Local, _) | (_, Self::Local) => Self::Local,
            (Self::Allow, Self::Allow) => Self::Allow,
        }
    }
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
            parts: 1,
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
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
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
    pub fn max_cost(&self) -> u64 {
        self.most
    }

    /// Whether this is a trial.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// What becomes of the request when the store cannot answer.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// Whether both draw on the same standing in the same way, so that they are decided as one.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.key == other.key && self.shadow == other.shadow && self.policy == other.policy
    }

    /// Adds the units of an equal charge. What one of both refuses when the store fails is refused.
    pub(crate) fn add(&mut self, other: &Self) {
        self.on_failure = self.on_failure.stricter(other.on_failure);
        self.cost = self.cost.saturating_add(other.cost);
        self.most = self.most.saturating_add(other.most);
    }

    /// The policy's quota now, as far as it still counts what this charge was counted by.
    pub(crate) fn quota_in_force(&self) -> Quota {
        let quota = self.policy.quota().part(self.parts);
        let same = discriminant(&quota.algorithm()) == discriminant(&self.quota.algorithm());
        if same { quota } else { self.quota }
    }

    /// The same charge against one of `parts` equal parts of the quota.
    pub(crate) fn share(&self, parts: u32) -> Self {
        Self { quota: self.quota.part(parts), parts, ..self.clone() }
    }

    /// The same charge for another number of units, under the quota in force.
    pub(crate) fn again(self, cost: u64) -> Self {
        Self { quota: self.quota_in_force(), cost, most: cost, ..self }
    }
}

/// The charges of one check: one or several, equal ones (of one policy and key) summed.
///
/// Made from a [`Charge`], an array or a vector of them, or collected from an iterator.
#[derive(Debug, Clone)]
pub struct Charges<'p>(Few<'p>);

/// Nearly always it is one, which then needs no allocation.
#[derive(Debug, Clone)]
enum Few<'p> {
    One(Charge<'p>),
    Several(Vec<Charge<'p>>),
}

impl<'p> Charges<'p> {
    /// The most charges in one check.
    pub const MAX: usize = 32;

    /// The charges, unless there are too many.
    #[inline]
    pub(crate) fn bounded(self) -> Result<Self, Error> {
        if self.len() <= Self::MAX {
            return Ok(self);
        }
        Err(Error::invalid(
            "number of charges in a check",
            format_args!("more than {}", Self::MAX),
            format_args!("at most {}", Self::MAX),
        ))
    }

    /// Adds a charge; says at which place it is, perhaps summed with an equal one.
    #[inline]
    pub(crate) fn add(&mut self, charge: Charge<'p>) -> usize {
        if self.is_empty() {
            *self = Self::from(charge);
            return 0;
        }
        self.add_another(charge)
    }

    fn add_another(&mut self, charge: Charge<'p>) -> usize {
        if let Some(place) = self.iter().position(|other| other.equals(&charge)) {
            let equal = match &mut self.0 {
                Few::One(only) => only,
                Few::Several(charges) => &mut charges[place],
            };
            equal.add(&charge);
            return place;
        }
        self.0 = Few::Several(match mem::take(self).0 {
            Few::One(first) => vec![first, charge],
            Few::Several(mut charges) => {
                charges.push(charge);
                charges
            }
        });
        self.len() - 1
    }

    /// The same charges, owning their policy handles.
    #[must_use]
    pub fn into_owned(self) -> Charges<'static> {
        Charges(match self.0 {
            Few::One(charge) => Few::One(charge.into_owned()),
            Few::Several(charges) => {
                Few::Several(charges.into_iter().map(Charge::into_owned).collect())
            }
        })
    }
}

impl Default for Charges<'_> {
    #[inline]
    fn default() -> Self {
        Self(Few::Several(Vec::new()))
    }
}

impl<'p> From<Charge<'p>> for Charges<'p> {
    #[inline]
    fn from(charge: Charge<'p>) -> Self {
        Self(Few::One(charge))
    }
}

impl<'p, const N: usize> From<[Charge<'p>; N]> for Charges<'p> {
    fn from(charges: [Charge<'p>; N]) -> Self {
        charges.into_iter().collect()
    }
}

impl<'p> From<Vec<Charge<'p>>> for Charges<'p> {
    fn from(charges: Vec<Charge<'p>>) -> Self {
        charges.into_iter().collect()
    }
}

impl<'p> FromIterator<Charge<'p>> for Charges<'p> {
    /// Takes no more than tells that there are more than [`MAX`](Self::MAX).
    fn from_iter<T: IntoIterator<Item = Charge<'p>>>(charges: T) -> Self {
        let mut summed = Self::default();
        for charge in charges {
            summed.add(charge);
            if summed.len() > Self::MAX {
                break;
            }
        }
        summed
    }
}

impl<'p> IntoIterator for Charges<'p> {
    type Item = Charge<'p>;
    type IntoIter = iter::Chain<option::IntoIter<Charge<'p>>, vec::IntoIter<Charge<'p>>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, several) = match self.0 {
            Few::One(charge) => (Some(charge), Vec::new()),
            Few::Several(charges) => (None, charges),
        };
        one.into_iter().chain(several)
    }
}

impl<'p> Deref for Charges<'p> {
    type Target = [Charge<'p>];

    #[inline]
    fn deref(&self) -> &[Charge<'p>] {
        match &self.0 {
            Few::One(charge) => slice::from_ref(charge),
            Few::Several(charges) => charges,
        }
    }
}
