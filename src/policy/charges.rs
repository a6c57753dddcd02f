//! The charges of one check.

use std::{iter, mem, ops::Deref, option, slice, vec};

use super::{Charge, FailurePolicy, OnFailure};
use crate::error::{Error, ErrorKind};

/// The charges of one check: one or several.
///
/// Methods of [`Limiter`](crate::Limiter) take `impl Into<Charges>`: a [`Charge`], an array or a
/// vector of charges. An iterator of charges can be collected into it. Charges of the same policy
/// and key are summed, so that the check sees their total.
///
/// One name is one quota. A check is an error of the kind [`Invalid`](crate::error::ErrorKind::Invalid) if two of
/// its charges have different policies of one name, or different
/// [quotas of their own](Charge::with_quota) for one key: the store would count both limits together.
///
/// ```
/// use plimsoll::{Policy, Quota, policy::Charges};
///
/// let second = Policy::new("per-second", Quota::per_second(10))?;
/// let day = Policy::new("per-day", Quota::per_day(1_000))?;
///
/// let charges =
///     Charges::from([second.charge("alice", 1), day.charge("alice", 5), day.charge("alice", 2)]);
/// assert_eq!(charges.len(), 2);
/// assert_eq!(charges[1].cost(), 7);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Charges<'p>(ChargeList<'p>);

/// Most checks have one charge, which then needs no allocation.
#[derive(Debug, Clone)]
enum ChargeList<'p> {
    One(Charge<'p>),
    /// No two of them are of the same line.
    Several(Vec<Charge<'p>>),
}

impl<'p> Charges<'p> {
    /// The maximum number of charges in one check.
    pub const MAX: usize = 32;

    /// Returns the charges with a [`Policy`](crate::Policy) handle of their own.
    #[must_use]
    pub(crate) fn into_owned(self) -> Charges<'static> {
        self.map(Charge::into_owned)
    }

    fn map<'q>(self, change: impl Fn(Charge<'p>) -> Charge<'q>) -> Charges<'q> {
        Charges(match self.0 {
            ChargeList::One(charge) => ChargeList::One(change(charge)),
            ChargeList::Several(charges) => {
                ChargeList::Several(charges.into_iter().map(change).collect())
            }
        })
    }

    /// Copies the charges of a request that is not the check of a limiter.
    pub(crate) fn copy(charges: &[Charge<'_>]) -> Charges<'static> {
        charges.iter().cloned().map(Charge::into_owned).collect()
    }

    /// Sets what happens when the store cannot answer, for charges for which it is not set.
    #[must_use]
    pub fn or_on_failure(self, on_failure: OnFailure) -> Self {
        self.map(|charge| charge.or_on_failure(on_failure))
    }

    /// Returns an error if there are more than [`MAX`](Self::MAX) charges, or if one name has two quotas.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.len() > Self::MAX {
            return Err(too_many());
        }
        for (index, one) in self.iter().enumerate() {
            if let Some(other) = self[index + 1..].iter().find(|other| contradict(one, other)) {
                return Err(two_quotas(one, other));
            }
        }
        Ok(())
    }

    /// Returns the treatment of the request if this check fails.
    pub(crate) fn failure_policy(&self) -> FailurePolicy {
        let binding = self.iter().filter(|charge| charge.is_live());
        FailurePolicy::of(binding.map(Charge::on_failure))
    }

    /// Adds a charge, and returns its position. A charge of the same line as an earlier one is
    /// added to that.
    pub(crate) fn add(&mut self, charge: Charge<'p>) -> usize {
        if let Some(position) = self.iter().position(|other| are_one(other, &charge)) {
            self.as_mut_slice()[position].add(&charge);
            return position;
        }
        if let ChargeList::Several(charges) = &mut self.0
            && charges.capacity() > 0
        {
            charges.push(charge);
        } else {
            self.0 = match mem::take(self).0 {
                ChargeList::One(first) => ChargeList::Several(vec![first, charge]),
                ChargeList::Several(_) => ChargeList::One(charge),
            };
        }
        self.len() - 1
    }

    fn as_mut_slice(&mut self) -> &mut [Charge<'p>] {
        match &mut self.0 {
            ChargeList::One(charge) => slice::from_mut(charge),
            ChargeList::Several(charges) => charges,
        }
    }
}

impl Default for Charges<'_> {
    fn default() -> Self {
        Self(ChargeList::Several(Vec::new()))
    }
}

impl<'p> From<Charge<'p>> for Charges<'p> {
    fn from(charge: Charge<'p>) -> Self {
        Self(ChargeList::One(charge))
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
    /// Stops after the first charge beyond [`MAX`](Self::MAX).
    fn from_iter<T: IntoIterator<Item = Charge<'p>>>(charges: T) -> Self {
        let charges = charges.into_iter();
        let mut summed = match charges.size_hint().0 {
            0 | 1 => Self::default(),
            expected => Self(ChargeList::Several(Vec::with_capacity(expected.min(Self::MAX)))),
        };
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
            ChargeList::One(charge) => (Some(charge), Vec::new()),
            ChargeList::Several(charges) => (None, charges),
        };
        one.into_iter().chain(several)
    }
}

impl<'p> Deref for Charges<'p> {
    type Target = [Charge<'p>];

    fn deref(&self) -> &[Charge<'p>] {
        match &self.0 {
            ChargeList::One(charge) => slice::from_ref(charge),
            ChargeList::Several(charges) => charges,
        }
    }
}

/// Returns whether two charges are added up.
fn are_one(one: &Charge<'_>, other: &Charge<'_>) -> bool {
    one.is_same_line(other) && !have_two_quotas(one, other)
}

/// Returns whether the quota of one charge is its own, and differs from the quota of the other. A quota that
/// changes between two charges makes no such difference.
fn have_two_quotas(one: &Charge<'_>, other: &Charge<'_>) -> bool {
    let owns = (one.owns_quota(), other.owns_quota());
    one.quota() != other.quota() && matches!(owns, (Some(true), Some(_)) | (Some(_), Some(true)))
}

/// Returns whether two charges cannot be in one check: they have two policies of one name, or two quotas for
/// one key. The store would count both limits together.
fn contradict(one: &Charge<'_>, other: &Charge<'_>) -> bool {
    if one.policy().is_clone_of(other.policy()) {
        one.key() == other.key() && have_two_quotas(one, other)
    } else {
        one.policy() == other.policy()
    }
}

fn two_quotas(one: &Charge<'_>, other: &Charge<'_>) -> Error {
    let message = format!(
        "a check has two limits under the name {:?} ({} and {}), allowed is one: give each limit a policy \
         with a name of its own",
        one.policy().name(),
        one.quota(),
        other.quota(),
    );
    Error::new(ErrorKind::Invalid, message)
}

fn too_many() -> Error {
    Error::invalid(
        "number of charges in a check",
        format_args!("more than {}", Charges::MAX),
        format_args!("at most {}", Charges::MAX),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::Policy, quota::Quota};

    #[test]
    fn equal_charges_are_summed_in_the_place_of_the_first() {
        let [a, b] = ["a", "b"].map(|name| Policy::new(name, Quota::per_second(1)).unwrap());
        let charges =
            || [a.charge("x", 1), b.charge("x", 2), a.charge("x", 3), a.charge("x", 4).shadow()];
        for summed in [Charges::from(charges()), charges().into_iter().collect()] {
            let costs: Vec<_> = summed.iter().map(Charge::cost).collect();
            assert_eq!(costs, [4, 2, 4]);
        }
    }

    #[test]
    fn a_check_has_one_quota_under_a_name() {
        let policy = |name, quota: &str| Policy::new(name, quota).unwrap();
        let (api, other, day) = (policy("api", "3/min"), policy("b", "9/s"), policy("api", "30/d"));
        let own = |quota: &str| api.charge("x", 1).with_quota(quota.parse().unwrap());
        for (wrong, quotas) in [
            ([api.charge("x", 1), day.charge("x", 1)], "3/min and 30/d"),
            ([api.charge("x", 1), day.charge("y", 1)], "3/min and 30/d"),
            ([api.charge("x", 1), day.charge("x", 1).shadow()], "3/min and 30/d"),
            ([api.charge("x", 1), day.charge("x", 0).trial()], "3/min and 30/d"),
            ([own("5/s"), own("50/min")], "5/s and 50/min"),
            ([own("5/s"), api.charge("x", 1)], "5/s and 3/min"),
        ] {
            let [one, two] = wrong;
            let charges = || [other.charge("x", 1), one.clone(), other.charge("y", 1), two.clone()];
            for charges in [Charges::from(charges()), charges().into_iter().collect()] {
                let error = charges.validate().unwrap_err();
                assert!(error.kind() == ErrorKind::Invalid);
                let start = format!("a check has two limits under the name \"api\" ({quotas}), ");
                assert!(error.to_string().starts_with(&start), "{error}");
            }
        }
        for right in [
            [own("5/s"), own("5/s")],
            [own("5/s"), api.charge("y", 1)],
            [api.charge("x", 1), api.charge("x", 1).shadow()],
        ] {
            assert!(Charges::from(right).validate().is_ok());
        }
        // A quota that changes between two charges is no second one.
        let first = api.charge("x", 1);
        api.set_quota("7/min".parse().unwrap());
        let charges = Charges::from([first, api.charge("x", 1)]);
        assert!(charges.validate().is_ok() && charges[0].cost() == 2);
    }

    #[test]
    fn a_vector_may_be_longer_than_a_check_if_it_sums_to_less() {
        let policy = Policy::new("a", Quota::per_second(1)).unwrap();
        let equal: Vec<_> = (0..1_000).map(|_| policy.charge("x", 1)).collect();
        let charges = Charges::from(equal);
        assert!(charges.validate().is_ok());
        assert_eq!((charges.len(), charges[0].cost()), (1, 1_000));
        let different: Vec<_> = (0..1_000_u64).map(|key| policy.charge(key, 1)).collect();
        assert!(Charges::from(different).validate().is_err());
    }
}
