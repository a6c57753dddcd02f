//! What the clones of one layer share.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, request::Parts};

use super::{
    Decided, denial, grpc,
    headers::{Headers, Stamp},
    settlement::{self, Hooks, Settlement},
};
use crate::{
    decision::{Decision, Denied, StoreReply},
    error::Error,
    limiter::Limiter,
    policy::{Charges, OnFailure},
    rule::{Ask, Rule, route},
    store::Answer,
    telemetry,
};

/// What a denial's response says.
#[derive(Clone, Default)]
pub(super) enum Answers {
    #[default]
    Problem,
    Text,
    Own(Arc<OnDenied>),
}

type OnDenied = dyn Fn(&Denied<'_>, &Parts) -> Response<Bytes> + Send + Sync;
type OnDecision = dyn Fn(&Decision<'_>, &Parts) + Send + Sync;

#[derive(Clone)]
pub(super) struct Config {
    pub(super) limiter: Limiter,
    pub(super) rules: Vec<Rule>,
    pub(super) exempt: Vec<Ask<bool>>,
    pub(super) headers: Headers,
    pub(super) jitter: Duration,
    pub(super) answers: Answers,
    pub(super) visible: bool,
    pub(super) on_decision: Option<Arc<OnDecision>>,
}

impl Config {
    /// Charges a request and asks the store. In one piece, so that what an embedded store decides
    /// is not moved about.
    pub(super) fn decide(&self, parts: &mut Parts) -> Progress {
        if self.exempt.iter().any(|exempt| exempt(parts)) {
            self.show_nothing(parts);
            return Progress::Decided(Admission::Through(None));
        }
        let (charges, hooks) = settlement::charges(&self.rules, parts);
        if charges.is_empty() {
            self.show_nothing(parts);
            return Progress::Decided(Admission::Through(None));
        }
        match self.limiter.begin(&charges).now() {
            Ok(reply) => Progress::Decided(self.admit(charges, hooks, reply, parts)),
            Err(answer) => Progress::Asked(Asked { answer, charges: charges.into_owned(), hooks }),
        }
    }

    /// Lets handlers see that nothing was decided, unless an outer layer has decided something.
    fn show_nothing(&self, parts: &mut Parts) {
        if self.visible && parts.extensions.get::<Decided>().is_none() {
            parts.extensions.insert(Decided::default());
        }
    }

    /// What the store's answer means for a request.
    pub(super) fn heard(
        &self,
        asked: Asked,
        reply: Result<StoreReply, Error>,
        parts: &mut Parts,
    ) -> Admission {
        self.admit(asked.charges, asked.hooks, reply, parts)
    }

    #[inline]
    fn admit(
        &self,
        charges: Charges<'_>,
        hooks: Hooks,
        reply: Result<StoreReply, Error>,
        parts: &mut Parts,
    ) -> Admission {
        let mut binding = charges.iter().filter(|charge| !charge.is_shadow());
        let binds = binding.clone().next().is_some();
        let denies = binding.any(|charge| charge.on_failure() == OnFailure::Deny);
        let decision = reply.and_then(|reply| Decision::new(charges, reply));
        // By reference: a decision is large.
        let decision = match &decision {
            Ok(decision) => decision,
            Err(error) => {
                // What the program asks wrongly is refused: nobody is unlimited by accident.
                let denies = denies || error.is_invalid() && binds;
                telemetry::store_failed(error, !denies);
                return match denies {
                    true => Admission::Instead(self.unavailable(parts)),
                    false => {
                        self.show_nothing(parts);
                        Admission::Through(None)
                    }
                };
            }
        };
        telemetry::log(decision, || route::matched(parts));
        telemetry::count(decision);
        if let Some(watch) = &self.on_decision {
            watch(decision, parts);
        }
        if let Decision::Denied(denied) = decision {
            return Admission::Instead(self.deny(decision, denied, parts));
        }
        let decided = self.visible.then(|| decided(decision, parts));
        if let Some(decided) = &decided {
            parts.extensions.insert(decided.clone());
        }
        Admission::Through(Some(if hooks.is_empty() {
            After::Stamp(self.headers.stamp(decision, None), decided)
        } else {
            let (limiter, decision) = (self.limiter.clone(), decision.clone().into_owned());
            let headers = self.headers;
            After::Settle(Box::new(Settlement { limiter, decision, hooks, headers, decided }))
        }))
    }

    fn deny(&self, decision: &Decision<'_>, denied: &Denied<'_>, parts: &Parts) -> Response<Bytes> {
        let retry_after = denial::retry_after(denied);
        let mut response = match grpc::content_type(parts) {
            // Its details say when to come back, more exactly than whole seconds.
            Some(content_type) => grpc::denial(denied, content_type, self.jitter),
            None => self.answer(denied, retry_after, parts),
        };
        self.headers.stamp(decision, retry_after).apply(response.headers_mut());
        if self.visible {
            decided(decision, parts).show(response.extensions_mut());
        }
        response
    }

    fn answer(
        &self,
        denied: &Denied<'_>,
        retry_after: Option<u64>,
        parts: &Parts,
    ) -> Response<Bytes> {
        let mut response = match &self.answers {
            Answers::Problem => denial::problem(denied, retry_after),
            Answers::Text => denial::text(retry_after),
            Answers::Own(respond) => respond(denied, parts),
        };
        if let Some(seconds) = retry_after {
            denial::set_retry_after(response.headers_mut(), seconds, self.jitter);
        }
        response
    }

    fn unavailable(&self, parts: &Parts) -> Response<Bytes> {
        match (grpc::content_type(parts), &self.answers) {
            (Some(content_type), _) => grpc::unavailable(content_type, self.jitter),
            (None, Answers::Text) => denial::unavailable_text(self.jitter),
            (None, _) => denial::unavailable(self.jitter),
        }
    }
}

/// The decision, and those of outer layers.
fn decided(decision: &Decision<'_>, parts: &Parts) -> Decided {
    Decided::new(decision.clone().into_owned(), parts.extensions.get().cloned())
}

/// Whether a request goes through to the inner service.
pub(super) enum Admission {
    Through(Option<After>),
    Instead(Response<Bytes>),
}

/// A decision at hand, or on its way.
pub(super) enum Progress {
    Decided(Admission),
    Asked(Asked),
}

/// What waits for the answer of a remote store.
pub(super) struct Asked {
    pub(super) answer: Answer,
    charges: Charges<'static>,
    hooks: Hooks,
}

/// What is left to do when the inner service has responded.
pub(super) enum After {
    /// Add the headers.
    Stamp(Stamp, Option<Decided>),
    /// Settle charges, then add the headers.
    Settle(Box<Settlement>),
}
