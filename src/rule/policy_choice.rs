//! The policy of a rule: a fixed one, or one that a closure chooses for each request.

use std::{fmt, slice, sync::Arc};

use http::request::Parts;

use crate::{
    key::Key,
    policy::{Charge, Policy},
};

/// A shared closure over the head of a request.
pub(crate) type RequestFn<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

#[derive(Clone)]
pub(super) enum PolicyChoice {
    Fixed(Policy),
    /// A closure chooses one of the policies that are `known`, or any other if none is.
    PerRequest {
        choose: RequestFn<Policy>,
        known: Vec<Policy>,
    },
}

impl PolicyChoice {
    /// Returns a charge under the policy of this request.
    pub(super) fn charge(&self, parts: &Parts, key: Key, cost: u64) -> Charge<'_> {
        match self {
            Self::Fixed(policy) => policy.charge(key, cost),
            Self::PerRequest { choose, .. } => choose(parts).charge(key, cost).into_owned(),
        }
    }

    /// Returns the policies that are known before the first request.
    pub(super) fn known(&self) -> &[Policy] {
        match self {
            Self::Fixed(policy) => slice::from_ref(policy),
            Self::PerRequest { known, .. } => known,
        }
    }

    /// Returns the policy for the description of a rule.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Fixed(policy) => policy.description(),
            Self::PerRequest { known, .. } if known.is_empty() => {
                "a policy chosen per request".to_owned()
            }
            Self::PerRequest { known, .. } => {
                let known: Vec<_> = known.iter().map(Policy::description).collect();
                format!("one of ({})", known.join(", "))
            }
        }
    }
}

impl fmt::Debug for PolicyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(policy) => policy.fmt(f),
            Self::PerRequest { .. } => f.write_str("chosen per request"),
        }
    }
}
