//! A cache of the `RateLimit-Policy` header, which stays the same until a policy changes.
//!
//! Each thread keeps the values that it made last and clones them, which costs an atomic increment instead of
//! writing, checking and allocating the text (`cargo bench --bench layer`: the row of the default
//! set). The values are per thread so that threads do not share a reference count.

use std::cell::RefCell;

use http::HeaderValue;

use crate::{
    decision::{Outcome, Outcomes},
    policy::Policy,
    quota::Quota,
};

/// The number of values that a thread keeps. A value that falls into an occupied slot
/// replaces the older one. If keys have [quotas of their own](crate::Charge::with_quota), each quota
/// has a slot, so that customers with a few different quotas do not replace each other's values.
const SLOTS: usize = 64;

thread_local! {
    static POLICIES: RefCell<[Option<CachedPolicies>; SLOTS]> = const { RefCell::new([const { None }; SLOTS]) };
}

/// The `RateLimit-Policy` of some policies, and the quotas that it was made for.
struct CachedPolicies {
    policies: Vec<(Policy, Quota)>,
    value: HeaderValue,
}

impl CachedPolicies {
    fn is_for(&self, outcomes: Outcomes<'_>) -> bool {
        let mut cached = self.policies.iter();
        let same = |outcome: Outcome<'_>| {
            cached.next().is_some_and(|(policy, quota)| {
                policy.is_clone_of(outcome.charge().policy()) && quota == outcome.charge().quota()
            })
        };
        shown(outcomes).all(same) && cached.next().is_none()
    }
}

/// Returns the `RateLimit-Policy` of these outcomes. If this thread does not have it, `make`
/// creates it.
pub(super) fn policies(outcomes: Outcomes<'_>, make: impl Fn() -> HeaderValue) -> HeaderValue {
    let Some(first) = shown(outcomes).next() else { return make() };
    let slot = slot(first.charge().policy(), first.charge().quota());
    let cached = POLICIES.try_with(|slots| {
        let slot = &mut slots.try_borrow_mut().ok()?[slot];
        if !slot.as_ref().is_some_and(|cached| cached.is_for(outcomes)) {
            let policies = shown(outcomes)
                .map(|outcome| (outcome.charge().policy().clone(), *outcome.charge().quota()))
                .collect();
            *slot = Some(CachedPolicies { policies, value: make() });
        }
        slot.as_ref().map(|cached| cached.value.clone())
    });
    // A thread that is ending may have dropped its values already.
    cached.ok().flatten().unwrap_or_else(make)
}

/// Returns the slot of a policy under a quota.
fn slot(policy: &Policy, quota: &Quota) -> usize {
    // 2^64 divided by the golden ratio: the upper bits of a product depend on all bits of the limit.
    let hash = policy.id() ^ quota.limit().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (u64::BITS - SLOTS.ilog2())) as usize
}

fn shown<'a>(outcomes: Outcomes<'a>) -> impl Iterator<Item = Outcome<'a>> {
    outcomes.filter(|outcome| outcome.charge().is_live())
}
