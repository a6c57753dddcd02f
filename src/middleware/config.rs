//! What the clones of one layer share.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, request::Parts};

use super::{
    denial,
    headers::{Headers, Stamp},
    settlement::{Hook, Hooks, Settlement},
};
use crate::{
    charge::OnFailure,
    decision::{Decision, Denied},
    error::Error,
    limiter::{self, Charges, Limiter},
    rule::{Ask, Rule},
    store::Ruling,
};

type OnDenied = dyn Fn(&Denied<'_>, &Parts) -> Response<Bytes> + Send + Sync;
type OnDecision = dyn Fn(&Decision<'_>, &Parts) + Send + Sync;

#[derive(Clone)]
pub(super) struct Config {
    pub(super) limiter: Limiter,
    pub(super) rules: Vec<Rule>,
    pub(super) exempt: Vec<Ask<bool>>,
    pub(super) headers: Headers,
    pub(super) jitter: Duration,
    pub(super) on_denied: Option<Arc<OnDenied>>,
    pub(super) on_decision: Option<Arc<OnDecision>>,
}

impl Config {
    pub(super) fn is_exempt(&self, parts: &Parts) -> bool {
        self.exempt.iter().any(|exempt| exempt(parts))
    }

    /// What a request is charged, and which rules will want to hear how it ended.
    pub(super) fn charges(&self, parts: &Parts) -> (Charges<'_>, Hooks) {
        let (mut charges, mut hooks) = (Charges::new(), Hooks::new());
        for (rule, charge) in self.rules.iter().map(|rule| (rule, rule.charge(parts))) {
            let Some(charge) = charge else { continue };
            let cost = charge.cost();
            let line = limiter::add(&mut charges, charge);
            if let Some(outcome) = &rule.outcome {
                hooks.push(Hook { line, cost, outcome: outcome.clone() });
            }
        }
        (charges, hooks)
    }

    /// What a ruling means for a request.
    pub(super) fn admit(
        &self,
        charges: Charges<'_>,
        hooks: Hooks,
        ruling: Result<Ruling, Error>,
        parts: &Parts,
    ) -> Admission {
        let denies_on_failure = charges
            .iter()
            .any(|charge| !charge.is_shadow() && charge.failure_mode() == OnFailure::Deny);
        let decision = match ruling.and_then(|ruling| limiter::decide(charges, ruling)) {
            Ok(decision) => decision,
            Err(_) if denies_on_failure => {
                return Admission::Instead(denial::unavailable(self.jitter));
            }
            Err(_) => return Admission::Through(None),
        };
        if let Some(watch) = &self.on_decision {
            watch(&decision, parts);
        }
        if let Decision::Denied(denied) = &decision {
            return Admission::Instead(self.deny(&decision, denied, parts));
        }
        Admission::Through(Some(if hooks.is_empty() {
            After::Stamp(self.headers.stamp(&decision, None))
        } else {
            let (limiter, decision) = (self.limiter.clone(), decision.into_owned());
            After::Settle(Box::new(Settlement { limiter, decision, hooks, headers: self.headers }))
        }))
    }

    fn deny(&self, decision: &Decision<'_>, denied: &Denied<'_>, parts: &Parts) -> Response<Bytes> {
        let retry_after = denial::retry_after(denied);
        let mut response = match &self.on_denied {
            Some(respond) => respond(denied, parts),
            None => denial::problem(denied, retry_after),
        };
        if let Some(seconds) = retry_after {
            denial::set_retry_after(response.headers_mut(), seconds, self.jitter);
        }
        self.headers.stamp(decision, retry_after).apply(response.headers_mut());
        response
    }
}

/// Whether a request goes through to the inner service.
pub(super) enum Admission {
    Through(Option<After>),
    Instead(Response<Bytes>),
}

/// What is left to do when the inner service has responded.
pub(super) enum After {
    /// Add the headers.
    Stamp(Stamp),
    /// Settle charges, then add the headers.
    Settle(Box<Settlement>),
}
