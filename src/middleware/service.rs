//! The service that limits requests, and its future, which awaits the decision, the inner service and refunds.

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
    decide::{Admission, Decider, PendingDecision},
    response::{ResponseChange, Settling},
};
use crate::outcome::{DenialBody, ResponseBody};

/// A [`Service`] whose requests are limited. [`RateLimitLayer`](crate::RateLimitLayer) creates it.
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    decider: Arc<Decider>,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, decider: Arc<Decider>) -> Self {
        Self { inner, decider }
    }

    pub(super) fn set_decider(&mut self, decider: &Arc<Decider>) {
        if !Arc::ptr_eq(&self.decider, decider) {
            self.decider = Arc::clone(decider);
        }
    }

    /// Takes the inner service, which is ready, and leaves a clone, which may not be ready.
    fn take_ready(&mut self) -> S
    where
        S: Clone,
    {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
    }
}

impl<S, B, RB> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    RB: Body,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // 1. The rules turn the head of the request into charges, and the limiter decides them.
        let (mut parts, body) = request.into_parts();
        match self.decider.decide(&mut parts) {
            // 2. An admitted request goes to the inner service. A request that is exempt, or that
            //    no rule charges, goes there as well, and its response is not changed.
            Admission::Admitted(change) => {
                let future = self.inner.call(Request::from_parts(parts, body));
                ResponseFuture { state: ResponseState::Calling { future, change } }
            }
            // 3. A rejected request does not reach the inner service. Dropping the ready service
            //    releases what it reserved, such as a permit of a concurrency limit.
            Admission::Rejected(response) => {
                drop(self.take_ready());
                ResponseFuture { state: ResponseState::Rejected { response: Some(response) } }
            }
            // 4. If the answer of the store is not ready, the future awaits
            //    it. Then it does the same with the service that is ready now.
            Admission::Pending(decision) => {
                let decider = Arc::clone(&self.decider);
                let service = self.take_ready();
                let waiting = WaitingRequest { decision, decider, service, parts, body };
                ResponseFuture {
                    state: ResponseState::Deciding { request: Some(Box::new(waiting)) },
                }
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

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
        Deciding { request: Option<Box<WaitingRequest<S, B>>> },
        // The inner service has been called.
        Calling { #[pin] future: F, change: Option<Box<ResponseChange>> },
        // The head of the response has arrived, and charges are refunded.
        Settling { settling: Option<Box<(R, Settling)>> },
    }
}

/// A request that waits for a decision, with the service that was ready for it. It is boxed so that
/// the future stays small for embedded stores, whose decision is ready at once.
struct WaitingRequest<S, B> {
    decision: PendingDecision,
    decider: Arc<Decider>,
    service: S,
    parts: Parts,
    body: B,
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
                ResponseStateProjection::Deciding { request } => {
                    let waiting = request.as_mut().expect("polled after it was ready");
                    let WaitingRequest { decision, decider, parts, .. } = &mut **waiting;
                    match ready!(decider.poll(decision, parts, cx)) {
                        Admission::Admitted(change) => {
                            let waiting = request.take().expect("it was there a line ago");
                            let WaitingRequest { mut service, parts, body, .. } = *waiting;
                            let request = Request::from_parts(parts, body);
                            ResponseState::Calling { future: service.call(request), change }
                        }
                        Admission::Rejected(response) => {
                            ResponseState::Rejected { response: Some(response) }
                        }
                        Admission::Pending(next) => {
                            *decision = next;
                            continue;
                        }
                    }
                }
                ResponseStateProjection::Calling { future, change } => {
                    let response = ready!(future.poll(cx))?;
                    let Some(mut change) = change.take() else {
                        return Poll::Ready(Ok(
                            response.map(|body| ResponseBody::inner(body, None))
                        ));
                    };
                    let Some(settlement) = change.settlement.take() else {
                        return Poll::Ready(Ok(change.apply(response)));
                    };
                    let settling = change.settle(*settlement, response);
                    ResponseState::Settling { settling: Some(Box::new(settling)) }
                }
                ResponseStateProjection::Settling { settling } => {
                    let (_, refunds) = &mut **settling.as_mut().expect("polled after it was ready");
                    let mut change = ready!(refunds.as_mut().poll(cx));
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
