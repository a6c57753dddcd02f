//! The decision of a layer to admit or reject a request, made from the head of the request.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Response, request::Parts};

use super::{
    headers::Headers,
    respond::{DenialResponse, Rejection, RejectionKind, grpc},
    response::{Decisions, ResponseChange},
};
use crate::{
    decision::{Checked, Decision, Denied},
    error::Error,
    key::Key,
    limiter::Limiter,
    outcome::{BodySettlement, DenialBody, Settlement},
    policy::{Charges, FailurePolicy},
    remote::{Answered, Progress, WaitingCheck},
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

/// The charges that layers have made to one of the first requests, in its extensions: limiter, policy and key.
#[derive(Debug, Clone, Default)]
struct Charged(Vec<(usize, u64, Key)>);

/// The result of a decision.
pub(super) enum Admission {
    /// The request goes to the inner service. The change is applied to its response, if there is one.
    Admitted(Option<Box<ResponseChange>>),
    /// The client gets this response instead.
    Rejected(Response<DenialBody>),
    /// The decision is not ready. [`Decider::poll`] continues it.
    Pending(PendingDecision),
}

/// A decision that is not ready at once.
pub(super) enum PendingDecision {
    /// A request to a remote store is in flight.
    Checking { call: WaitingCheck<'static>, policy: FailurePolicy, hooks: ResponseHooks },
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
    pub(super) fn decide(&self, parts: &mut Parts) -> Admission {
        if !self.enabled || self.is_exempt(parts) {
            return Admission::Admitted(None);
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
            PendingDecision::Checking { call, policy, hooks } => {
                let check = ready!(Pin::new(call).poll(cx));
                Poll::Ready(self.judge(check, *policy, mem::take(hooks), parts))
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
    fn check(&self, parts: &mut Parts) -> Admission {
        let mut request = RequestCharges::default();
        if request.add_all(&self.rules, parts).is_err() {
            return Admission::Rejected(self.denial_format.respond(Rejection::no_peer(), parts));
        }
        let RequestCharges { charges, hooks, sum } = request;
        if charges.is_empty() {
            return Admission::Admitted(None);
        }
        self.find_second_charge(&charges, sum, parts);
        if !self.delay.is_zero() {
            return Admission::Pending(self.delay(charges.into_owned(), hooks));
        }
        let policy = charges.failure_policy();
        match self.limiter.begin(Checked::new(charges), None) {
            Progress::Decided(check) => self.judge(check, policy, hooks, parts),
            Progress::Waits(call) => {
                let call = call.into_owned();
                Admission::Pending(PendingDecision::Checking { call, policy, hooks })
            }
        }
    }

    /// Starts the decision on a request that may wait.
    fn delay(&self, charges: Charges<'static>, hooks: ResponseHooks) -> PendingDecision {
        let policy = charges.failure_policy();
        let limiter = self.limiter.clone();
        let max = self.delay;
        let decision = Box::pin(async move { limiter.delayed(charges, max).await });
        PendingDecision::Delayed { decision, policy, hooks }
    }

    fn is_exempt(&self, parts: &mut Parts) -> bool {
        // The exemption of a path does not exempt other spellings, which may reach another route.
        self.exempts(parts)
            && (!route::has_other_spelling(parts)
                || route::exactly(parts, |parts| self.exempts(parts)))
    }

    fn exempts(&self, parts: &Parts) -> bool {
        self.exempt.iter().any(|exempt| exempt(parts))
    }

    /// Looks for a charge that another rule or another layer has made to the same request: shadows and trials spend
    /// units, too. `sum` is the index of a charge that adds up the charges of two rules. After the first requests, it
    /// reads only one atomic.
    fn find_second_charge(&self, charges: &Charges<'_>, sum: Option<usize>, parts: &mut Parts) {
        if self.first_requests.count().is_none() {
            return;
        }
        let mut second = sum.and_then(|index| charges.get(index));
        let charged = parts.extensions.get_or_insert_default::<Charged>();
        for charge in charges.iter().filter(|charge| charge.cost() > 0) {
            let line = (self.limiter.id(), charge.policy().id(), *charge.key());
            if charged.0.contains(&line) {
                second.get_or_insert(charge);
            }
            charged.0.push(line);
        }
        if let Some(charge) = second {
            self.first_requests.end();
            telemetry::charged_twice(charge.policy().name());
        }
    }

    /// Decides a request with the reply of the store.
    fn judge(
        &self,
        check: Answered<'_>,
        policy: FailurePolicy,
        hooks: ResponseHooks,
        parts: &mut Parts,
    ) -> Admission {
        match check.and_then(Decision::new) {
            Ok(decision) => self.admit(&decision, hooks, parts),
            Err(error) => self.fail(policy, &error, parts),
        }
    }

    /// Admits or rejects a request by its decision. The decision is borrowed and not moved: it is
    /// large, and a move costs as much as making it.
    fn admit(&self, decision: &Decision<'_>, hooks: ResponseHooks, parts: &mut Parts) -> Admission {
        telemetry::record_decision(decision.outcomes(), decision.source(), || {
            route::matched(parts)
        });
        if let Some(on_decision) = &self.on_decision {
            on_decision(decision, parts);
        }
        if let Decision::Denied(denied) = decision {
            return Admission::Rejected(self.deny(decision, denied, parts));
        }
        let held = self.limiter.held_units(decision);
        let decisions = self.visible.then(|| decisions(decision, parts));
        if let Some(decisions) = &decisions {
            parts.extensions.insert(decisions.clone());
        }
        let settlement = (!hooks.is_empty()).then(|| {
            let decision = decision.clone().into_owned();
            let settlement = Settlement { limiter: self.limiter.clone(), decision, hooks };
            Box::new((settlement, self.headers))
        });
        let at_end = held.map(BodySettlement::holding);
        let is_rare = decisions.is_some() || settlement.is_some() || at_end.is_some();
        if self.headers.is_none() && !is_rare {
            return Admission::Admitted(None);
        }
        let headers = self.headers.for_decision(decision);
        let change = ResponseChange { headers, decisions, settlement, at_end };
        Admission::Admitted(Some(Box::new(change)))
    }

    /// Admits or rejects a request that the store could not decide.
    fn fail(&self, policy: FailurePolicy, error: &Error, parts: &mut Parts) -> Admission {
        let admitted = policy.admits(error);
        telemetry::check_failed(error, admitted);
        if admitted {
            return Admission::Admitted(None);
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
            decisions(decision, parts).add_to(response.extensions_mut());
        }
        response
    }
}

/// Returns the decision for handlers, with the decisions of outer layers behind it.
fn decisions(decision: &Decision<'_>, parts: &Parts) -> Decisions {
    Decisions::new(decision.clone().into_owned(), parts.extensions.get().cloned())
}

/// The format of the responses to requests that are not admitted. A gRPC request gets a gRPC status
/// with every format.
#[derive(Clone, Default)]
pub(super) struct DenialFormat {
    /// True for plain text instead of problem documents (RFC 9457), where the application has no closure.
    pub(super) is_plain: bool,
    /// The closure for [`RejectionKind::OverQuota`].
    pub(super) on_denied: Option<OnRejected>,
    /// The closure for [`RejectionKind::OverCapacity`].
    pub(super) on_over_capacity: Option<OnRejected>,
    /// The closure for [`RejectionKind::Unavailable`].
    pub(super) on_unavailable: Option<OnRejected>,
}

/// A closure of the application that creates a response.
pub(super) type OnRejected = Arc<dyn Fn(&Rejection<'_>, &Parts) -> DenialResponse + Send + Sync>;

impl DenialFormat {
    /// Returns the response to a rejected request, which no cache may store.
    pub(super) fn respond(&self, rejection: Rejection<'_>, parts: &Parts) -> Response<DenialBody> {
        if let Some(content_type) = grpc::content_type(parts) {
            return grpc::respond(rejection, content_type);
        }
        match self.closure(rejection.kind()) {
            Some(respond) => {
                let response = respond(&rejection, parts);
                rejection.complete(response)
            }
            None if self.is_plain => rejection.into_plain_text().map(DenialBody::from),
            None => rejection.into_problem().map(DenialBody::from),
        }
    }

    /// Returns the closure for this kind of rejection. A missing peer is a mistake in the program, which the
    /// response of the layer explains.
    fn closure(&self, kind: RejectionKind) -> Option<&OnRejected> {
        match kind {
            RejectionKind::OverQuota => self.on_denied.as_ref(),
            RejectionKind::OverCapacity => self.on_over_capacity.as_ref(),
            RejectionKind::Unavailable => self.on_unavailable.as_ref(),
            RejectionKind::NoPeer => None,
        }
    }
}
