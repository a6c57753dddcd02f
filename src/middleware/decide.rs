//! The decision of a layer to admit or reject a request, made from the head of the request.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Response, request::Parts};
use http_body::Body;

use super::{
    Decisions,
    headers::{Headers, ResponseHeaders},
    misuse,
    respond::{DenialFormat, Rejection},
};
use crate::{
    decision::{Decision, Denied, StoreReply},
    error::Error,
    limiter::Limiter,
    outcome::{BodySettlement, DenialBody, ResponseBody, Settlement},
    policy::{Charges, FailurePolicy},
    remote::{Call, Step},
    rule::{RequestCharges, RequestFn, ResponseHooks, Rules, route},
    telemetry::{self, Announcement, FirstRequests},
};

/// The settings of a layer, which all its services share.
#[derive(Clone)]
pub(super) struct Decider {
    pub(super) limiter: Limiter,
    pub(super) enabled: bool,
    pub(super) rules: Rules,
    pub(super) exempt: Vec<RequestFn<bool>>,
    pub(super) headers: Headers,
    pub(super) jitter: Duration,
    /// The longest time for which a request over its limit waits.
    pub(super) delay: Duration,
    pub(super) denial_format: DenialFormat,
    pub(super) visible: bool,
    pub(super) on_decision: Option<Arc<OnDecision>>,
    /// The first requests, in which misuse is looked for. A changed clone of the layer shares the counter.
    pub(super) first_requests: Arc<FirstRequests>,
    pub(super) announcement: Announcement,
}

type OnDecision = dyn Fn(&Decision<'_>, &Parts) + Send + Sync;

/// The result of [`Decider::decide`].
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum FirstStep {
    Decided(Admission),
    /// [`Decider::poll`] continues the decision.
    Pending(PendingDecision),
}

/// The result of a decision.
pub(super) enum Admission {
    /// The request goes to the inner service. The change is applied to its response.
    Admitted(ResponseChange),
    /// The client gets this response instead.
    Rejected(Response<DenialBody>),
}

/// The change of a response of the inner service.
#[derive(Default)]
pub(super) struct ResponseChange {
    headers: ResponseHeaders,
    /// The decision for the extensions of the response.
    decided: Option<Decisions>,
    /// The charges that depend on the response, and the headers that show them. Few requests have such charges.
    settlement: Option<Box<(Settlement, Headers)>>,
    /// The guard of units in flight, and of what the end of the body settles.
    at_end: Option<Box<BodySettlement>>,
}

/// A change that waits for refunds.
pub(super) type Settling = Pin<Box<dyn Future<Output = ResponseChange> + Send>>;

impl ResponseChange {
    /// Adjusts charges by the head of the response, if some depend on it. The response waits for their refunds.
    pub(super) fn settle<B: Body>(
        &mut self,
        response: Response<B>,
    ) -> (Response<B>, Option<Settling>) {
        let Some(settlement) = self.settlement.take() else { return (response, None) };
        let (settlement, shown) = *settlement;
        let Self { decided, at_end, .. } = mem::take(self);
        let (head, body) = response.into_parts();
        let settling = settlement.at_head(at_end, &head, &body.size_hint());
        let settling = Box::pin(async move {
            let (decision, at_end) = settling.await;
            let headers = shown.for_decision(&decision);
            let decided = decided.map(|decided| decided.with_decision(decision));
            Self { headers, decided, settlement: None, at_end }
        });
        (Response::from_parts(head, body), Some(settling))
    }

    /// Changes a response. Its body holds units in flight until it has ended.
    pub(super) fn apply<B>(self, response: Response<B>) -> Response<ResponseBody<B>> {
        let mut response = response;
        self.headers.add_to(response.headers_mut());
        if let Some(decided) = self.decided {
            decided.add_to(response.extensions_mut());
        }
        response.map(|body| ResponseBody::inner(body, self.at_end))
    }
}

/// A decision that is not ready at once.
#[expect(clippy::large_enum_variant, reason = "it is in the box of the call that waits for it")]
pub(super) enum PendingDecision {
    /// A request to a remote store is in flight.
    Checking { call: Call<'static>, hooks: ResponseHooks },
    /// The request waits for its turn.
    Delayed { decision: DelayedDecision, policy: FailurePolicy, hooks: ResponseHooks },
}

type DelayedDecision = Pin<Box<dyn Future<Output = Result<Decision<'static>, Error>> + Send>>;

impl Decider {
    /// Reports the limits, the store and its resilience, once for each layer.
    pub(super) fn announce(&self) {
        self.announcement.make(|| {
            let off = if self.enabled { "" } else { "switched off: " };
            format!("{off}{}; store {}", self.rules.description(), self.limiter.description())
        });
    }

    /// Decides a request, if the answer of the store is ready. Otherwise the caller [polls](Self::poll) for the decision.
    pub(super) fn decide(&self, parts: &mut Parts) -> FirstStep {
        if !self.enabled || self.is_exempt(parts) {
            return FirstStep::Decided(Admission::Admitted(ResponseChange::default()));
        }
        self.check(parts)
    }

    /// Continues a pending decision.
    pub(super) fn poll(
        &self,
        pending: &mut PendingDecision,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Admission> {
        match pending {
            PendingDecision::Checking { call, hooks } => {
                let (charges, reply) = ready!(Pin::new(call).poll(cx));
                Poll::Ready(self.judge(charges, mem::take(hooks), reply, parts))
            }
            PendingDecision::Delayed { decision, policy, hooks } => {
                Poll::Ready(match ready!(decision.as_mut().poll(cx)) {
                    Ok(decision) => self.admit(&decision, mem::take(hooks), parts),
                    Err(error) => self.fail(*policy, &error, parts),
                })
            }
        }
    }

    /// Applies the rules to a request, and asks the limiter.
    fn check(&self, parts: &mut Parts) -> FirstStep {
        let Ok(RequestCharges { mut charges, hooks, sum }) = self.rules.charges(parts) else {
            let response = self.denial_format.respond(Rejection::no_peer(), parts);
            return FirstStep::Decided(Admission::Rejected(response));
        };
        if charges.is_empty() {
            return FirstStep::Decided(Admission::Admitted(ResponseChange::default()));
        }
        misuse::find_second_charge(&self.first_requests, &self.limiter, &charges, sum, parts);
        if !self.delay.is_zero() {
            return FirstStep::Pending(self.delay(charges.into_owned(), hooks));
        }
        match self.limiter.begin(&mut charges, None) {
            Ok(Step::Decided(reply)) => {
                FirstStep::Decided(self.judge(charges, hooks, reply, parts))
            }
            Ok(Step::Waits(call)) => {
                FirstStep::Pending(PendingDecision::Checking { call: call.into_owned(), hooks })
            }
            Err(error) => FirstStep::Decided(self.fail(charges.failure_policy(), &error, parts)),
        }
    }

    /// Starts the decision on a request that may wait.
    fn delay(&self, charges: Charges<'static>, hooks: ResponseHooks) -> PendingDecision {
        let policy = charges.failure_policy();
        let (limiter, max) = (self.limiter.clone(), self.delay);
        let decision = Box::pin(async move { limiter.delayed(charges, max).await });
        PendingDecision::Delayed { decision, policy, hooks }
    }

    fn is_exempt(&self, parts: &mut Parts) -> bool {
        let exempt = |parts: &Parts| self.exempt.iter().any(|exempt| exempt(parts));
        // The exemption of a path does not exempt other spellings, which may reach another route.
        exempt(parts) && (!route::has_other_spelling(parts) || route::exactly(parts, exempt))
    }

    /// Decides a request with the reply of the store.
    fn judge(
        &self,
        mut charges: Charges<'_>,
        hooks: ResponseHooks,
        reply: Result<StoreReply, Error>,
        parts: &mut Parts,
    ) -> Admission {
        let policy = charges.failure_policy();
        match reply.and_then(|reply| Decision::new(&mut charges, reply)) {
            Ok(decision) => self.admit(&decision, hooks, parts),
            Err(error) => self.fail(policy, &error, parts),
        }
    }

    /// Admits or rejects a request by its decision. The decision is borrowed and not moved: it is
    /// large, and a move costs as much as making it.
    fn admit(&self, decision: &Decision<'_>, hooks: ResponseHooks, parts: &mut Parts) -> Admission {
        telemetry::record_decision(decision, || route::matched(parts));
        if let Some(on_decision) = &self.on_decision {
            on_decision(decision, parts);
        }
        if let Decision::Denied(denied) = decision {
            return Admission::Rejected(self.deny(decision, denied, parts));
        }
        let permit = self.limiter.permit(decision);
        let decided = self.visible.then(|| decided(decision, parts));
        if let Some(decided) = &decided {
            parts.extensions.insert(decided.clone());
        }
        let settlement = (!hooks.is_empty()).then(|| {
            let (limiter, decision) = (self.limiter.clone(), decision.clone().into_owned());
            Box::new((Settlement { limiter, decision, hooks }, self.headers))
        });
        let headers = self.headers.for_decision(decision);
        let at_end = BodySettlement::of(permit);
        Admission::Admitted(ResponseChange { headers, decided, settlement, at_end })
    }

    /// Admits or rejects a request that the store could not decide.
    fn fail(&self, policy: FailurePolicy, error: &Error, parts: &mut Parts) -> Admission {
        let admitted = policy.admits(error);
        telemetry::check_failed(error, admitted);
        if admitted {
            return Admission::Admitted(ResponseChange::default());
        }
        let rejection = Rejection::unavailable(self.jitter);
        Admission::Rejected(self.denial_format.respond(rejection, parts))
    }

    fn deny(
        &self,
        decision: &Decision<'_>,
        denied: &Denied<'_>,
        parts: &Parts,
    ) -> Response<DenialBody> {
        let rejection = Rejection::denied_by(denied, &self.headers, self.jitter);
        let mut response = self.denial_format.respond(rejection, parts);
        if self.visible {
            decided(decision, parts).add_to(response.extensions_mut());
        }
        response
    }
}

/// Returns the decision for handlers, with the decisions of outer layers behind it.
fn decided(decision: &Decision<'_>, parts: &Parts) -> Decisions {
    Decisions::new(decision.clone().into_owned(), parts.extensions.get().cloned())
}
