//! The response future, which awaits the decision, the inner service and the settlement.

use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    Decisions,
    decide::{Admission, Decider, PendingDecision, PendingSettlement, ResponseChange},
    headers::{Headers, ResponseHeaders},
};
use crate::{
    limiter::Permit,
    outcome::{BodySettlement, DenialBody, ResponseBody, Settled, SettlementFuture},
};

pin_project! {
    /// The response future of [`RateLimit`](crate::layer::RateLimit).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: ResponseState<S, S::Future, S::Response, B>,
    }
}

pin_project! {
    #[project = ResponseStateProjection]
    enum ResponseState<S, F, R, B> {
        // The request was rejected with this response.
        Rejected { response: Option<Response<DenialBody>> },
        // The check is in flight to a remote store, or the request waits for its turn.
        Deciding { call: Option<Box<PendingCall<S, B>>> },
        // The inner service has been called.
        Calling { #[pin] future: F, change: ResponseChange },
        // The head of the response has arrived, and charges are refunded.
        Settling { settling: Option<Box<Settling<R>>> },
    }
}

/// A call that waits for a decision, with the service that was ready for it. It is boxed so that
/// the future stays small for embedded stores, whose decision is ready at once.
struct PendingCall<S, B> {
    decision: PendingDecision,
    decider: Arc<Decider>,
    service: S,
    parts: Parts,
    body: B,
}

/// A response that waits for refunds.
struct Settling<R> {
    response: R,
    settlement: SettlementFuture,
    headers: Headers,
    decided: Option<Decisions>,
    permit: Option<Permit>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn rejected(response: Response<DenialBody>) -> Self {
        Self { state: ResponseState::Rejected { response: Some(response) } }
    }

    #[inline]
    pub(super) fn calling(future: S::Future, change: ResponseChange) -> Self {
        Self { state: ResponseState::Calling { future, change } }
    }

    pub(super) fn deciding(
        decision: PendingDecision,
        decider: Arc<Decider>,
        service: S,
        (parts, body): (Parts, B),
    ) -> Self {
        let call = PendingCall { decision, decider, service, parts, body };
        Self { state: ResponseState::Deciding { call: Some(Box::new(call)) } }
    }
}

impl<S, B, RB> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<RB>>,
    RB: Body,
{
    type Output = Result<Response<ResponseBody<RB>>, S::Error>;

    /// # Panics
    ///
    /// Panics if polled again after it was ready.
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                ResponseStateProjection::Rejected { response } => {
                    let response = response.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(response.map(ResponseBody::denial)));
                }
                ResponseStateProjection::Deciding { call } => {
                    let pending = call.as_mut().expect("polled after it was ready");
                    let PendingCall { decision, decider, parts, .. } = &mut **pending;
                    let admission = ready!(decider.poll(decision, parts, cx));
                    let call = *call.take().expect("the call was there a line ago");
                    let PendingCall { mut service, parts, body, .. } = call;
                    match admission {
                        Admission::Admitted(change) => {
                            let request = Request::from_parts(parts, body);
                            ResponseState::Calling { future: service.call(request), change }
                        }
                        Admission::Rejected(response) => {
                            ResponseState::Rejected { response: Some(response) }
                        }
                    }
                }
                ResponseStateProjection::Calling { future, change } => {
                    let mut response = ready!(future.poll(cx))?;
                    let mut change = mem::replace(change, ResponseChange::None);
                    let mut permit = None;
                    // Only few changes are moved here, because a change is large.
                    if let ResponseChange::Hold(held) = change {
                        permit = Some(held.0);
                        change = held.1;
                    }
                    match change {
                        ResponseChange::None | ResponseChange::Hold(_) => {}
                        ResponseChange::Add(headers, decided) => {
                            add_to(&mut response, headers, decided);
                        }
                        ResponseChange::Settle(pending) => {
                            state.set(settling(response, *pending, permit));
                            continue;
                        }
                    }
                    let at_end = BodySettlement::holding(None, permit);
                    return Poll::Ready(Ok(response.map(|body| ResponseBody::inner(body, at_end))));
                }
                ResponseStateProjection::Settling { settling } => {
                    let pending = settling.as_mut().expect("polled after it was ready");
                    let Settled { decision, at_end } = ready!(pending.settlement.as_mut().poll(cx));
                    let settling = *settling.take().expect("the response was there a line ago");
                    let Settling { mut response, headers, decided, permit, .. } = settling;
                    let at_end = BodySettlement::holding(at_end, permit);
                    let headers = headers.for_decision(&decision);
                    let decided = decided.map(|decided| decided.with_decision(decision));
                    add_to(&mut response, headers, decided);
                    return Poll::Ready(Ok(response.map(|body| ResponseBody::inner(body, at_end))));
                }
            };
            state.set(next);
        }
    }
}

/// Starts the settlement of a response whose head has arrived.
fn settling<S, F, B, RB: Body>(
    response: Response<RB>,
    pending: PendingSettlement,
    permit: Option<Permit>,
) -> ResponseState<S, F, Response<RB>, B> {
    let PendingSettlement { settlement, headers, decided } = pending;
    let (head, body) = response.into_parts();
    let settlement = settlement.at_head(&head, &body.size_hint());
    let response = Response::from_parts(head, body);
    let settling = Settling { response, settlement, headers, decided, permit };
    ResponseState::Settling { settling: Some(Box::new(settling)) }
}

#[inline]
fn add_to<B>(response: &mut Response<B>, headers: ResponseHeaders, decided: Option<Decisions>) {
    headers.add_to(response.headers_mut());
    if let Some(decided) = decided {
        decided.add_to(response.extensions_mut());
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            ResponseState::Rejected { .. } => "ResponseFuture(rejected)",
            ResponseState::Deciding { .. } => "ResponseFuture(deciding)",
            ResponseState::Calling { .. } => "ResponseFuture(calling)",
            ResponseState::Settling { .. } => "ResponseFuture(settling)",
        })
    }
}
