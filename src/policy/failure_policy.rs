//! The treatment of a request whose check has failed.

use super::{Charge, OnFailure};
use crate::error::Error;

/// The treatment of a request whose check has failed, derived from all charges of the check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailurePolicy {
    /// At least one charge is not a shadow.
    binds: bool,
    /// At least one charge that is not a shadow says [`OnFailure::Deny`].
    denies: bool,
}

impl FailurePolicy {
    /// The treatment of a request whose rows could not be loaded, although a rule denies it then.
    pub(crate) const DENY: Self = Self { binds: true, denies: true };

    /// Returns the treatment of a check of these charges.
    #[inline]
    pub(crate) fn of(charges: &[Charge<'_>]) -> Self {
        let mut binding = charges.iter().filter(|charge| !charge.is_shadow()).peekable();
        let binds = binding.peek().is_some();
        Self { binds, denies: binding.any(|charge| charge.on_failure() == OnFailure::Deny) }
    }

    /// Returns whether the request is admitted although its check has failed with `error`.
    ///
    /// - If the store could not decide, the request is admitted unless a charge says
    ///   [`OnFailure::Deny`].
    /// - An invalid check is a mistake of the application. The request is rejected, because admitting it
    ///   would lift the limit for good. A check that has waited in vain rejects it as well.
    /// - A check of shadows alone never rejects a request.
    pub(crate) fn admits(self, error: &Error) -> bool {
        if error.is_unavailable() { !self.denies } else { !self.binds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ErrorKind, policy::Policy};

    #[test]
    fn only_charges_that_are_enforced_reject_a_request() {
        let policy = Policy::new("p", "1/s").unwrap();
        let charge = || policy.charge("k", 1);
        let [invalid, down] =
            [ErrorKind::Invalid, ErrorKind::Unavailable].map(|kind| Error::new(kind, "no"));
        for (charge, admits_invalid, admits_down) in [
            (charge(), false, true),
            (charge().with_on_failure(OnFailure::Allow), false, true),
            (charge().with_on_failure(OnFailure::Deny), false, false),
            (charge().shadow(), true, true),
            (charge().with_on_failure(OnFailure::Deny).shadow(), true, true),
        ] {
            let failure_policy = FailurePolicy::of(&[charge]);
            assert_eq!(failure_policy.admits(&invalid), admits_invalid, "{failure_policy:?}");
            assert_eq!(failure_policy.admits(&down), admits_down, "{failure_policy:?}");
        }
    }
}
