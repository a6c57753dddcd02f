//! The response future, which awaits the decision, the inner service and refunds.

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

use super::decide::{Admission, Decider, PendingDecision, ResponseChange, Settling};
use crate::outcome::{DenialBody, ResponseBody};

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
        Settling { settling: Option<Box<(R, Settling)>> },
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

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn rejected(response: Response<DenialBody>) -> Self {
        Self { state: ResponseState::Rejected { response: Some(response) } }
    }

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
                    let response = ready!(future.poll(cx))?;
                    match change.settle(response) {
                        (response, None) => {
                            return Poll::Ready(Ok(mem::take(change).apply(response)));
                        }
                        (response, Some(settling)) => {
                            let settling = Some(Box::new((response, settling)));
                            ResponseState::Settling { settling }
                        }
                    }
                }
                ResponseStateProjection::Settling { settling } => {
                    let waiting = settling.as_mut().expect("polled after it was ready");
                    let change = ready!(waiting.1.as_mut().poll(cx));
                    let (response, _) = *settling.take().expect("it was there a line ago");
                    return Poll::Ready(Ok(change.apply(response)));
                }
            };
            state.set(next);
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
