//! The record that a receipt was used.
//!
//! A claim is a charge of 1 unit to a policy of 1 unit, under the number of the receipt. The store admits it
//! once, for all instances that share the store, and decides by its own clock. The window of the policy is as
//! long as the receipt is valid: a sliding log admits no second unit in any such window, and after it the
//! receipt has expired. So the record can be forgotten then, and each key has a time to live.
//!
//! A used receipt is no key that is limited, so it is not among the denials in metrics and logs: a claim looks first,
//! which is no decision, and the charge is a shadow. A shadow is charged only if it passes, and it denies nothing.

use std::time::Duration;

use plimsoll::{
    Decision, Effect, Error, ErrorKind, Limiter, MemoryConfig, MemoryStore, OnFailure, Policy,
    Quota, Timestamp, store::Source,
};

/// The name of the policy of claims, in metrics and in the store.
const NAME: &str = "plimsoll.receipts";

/// The most claims in memory, if the budgets are in memory too. They are counted apart from the budgets, so
/// that many receipts do not push out keys.
const MAX_IN_MEMORY: usize = 1_000_000;

/// Records the use of receipts.
#[derive(Clone)]
pub(super) struct Claims {
    limiter: Limiter,
    policy: Policy,
}

/// The result of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The receipt was not used before. It has the store's time.
    First(Timestamp),
    /// The receipt was used before. It has the store's time.
    Again(Timestamp),
}

impl Claims {
    /// Creates claims in the store of the budgets, if instances share it, and else in a memory of their own.
    pub(super) fn new(limiter: &Limiter, is_shared: bool) -> Result<Self, Error> {
        let limiter = match is_shared {
            true => limiter.clone(),
            false => {
                Limiter::new(MemoryStore::new(MemoryConfig::default().max_keys(MAX_IN_MEMORY)))
            }
        };
        Ok(Self { limiter, policy: Policy::new(NAME, Quota::per_minute(1))? })
    }

    /// Records that a receipt is used now.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot answer. The claim may have been made if the error says so: then the
    /// receipt is used up.
    pub(super) async fn claim(&self, nonce: [u64; 2], validity: Duration) -> Result<Claim, Error> {
        let quota = Quota::new(1, validity.max(Duration::from_secs(1)))?;
        let charge = self.policy.charge(key(nonce), 1).with_quota(quota);
        // No other part decides if the store cannot: it would not know of claims at other instances.
        let charge = charge.with_on_failure(OnFailure::Deny);
        if let Decision::Denied(denied) = self.limiter.peek(charge.clone()).await? {
            return Ok(Claim::Again(denied.time()));
        }
        let decision = self.limiter.check(charge.shadow()).await?;
        if decision.source() == Source::Fallback {
            // The fallback decides shadows whatever they say.
            let error = Error::new(ErrorKind::Unavailable, "the store did not answer a claim");
            return Err(error.with_effect(Effect::Unknown));
        }
        let is_charged = decision.outcomes().iter().any(|outcome| outcome.granted() > 0);
        Ok(if is_charged { Claim::First(decision.time()) } else { Claim::Again(decision.time()) })
    }

    /// Withdraws a claim whose receipt could not be used, so that the client can try again. If the store cannot
    /// answer, the receipt stays used up.
    pub(super) async fn withdraw(&self, nonce: [u64; 2], cause: &Error) {
        if cause.effect() == Effect::None {
            drop(self.limiter.reset(self.policy.charge(key(nonce), 1)).await);
        }
    }
}

fn key([high, low]: [u64; 2]) -> u128 {
    (u128::from(high) << 64) | u128::from(low)
}
