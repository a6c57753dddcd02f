//! The service that limits requests.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    ResponseFuture,
    decide::{Admission, Decider, FirstStep},
};
use crate::outcome::ResponseBody;

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
            FirstStep::Decided(Admission::Admitted(change)) => {
                let request = Request::from_parts(parts, body);
                ResponseFuture::calling(self.inner.call(request), change)
            }
            // 3. A rejected request does not reach the inner service. Dropping the ready service
            //    releases what it reserved, such as a permit of a concurrency limit.
            FirstStep::Decided(Admission::Rejected(response)) => {
                drop(self.take_ready());
                ResponseFuture::rejected(response)
            }
            // 4. If the answer of the store is not ready, the future awaits
            //    it. Then it does the same with the service that is ready now.
            FirstStep::Pending(pending) => {
                let (decider, ready) = (Arc::clone(&self.decider), self.take_ready());
                ResponseFuture::deciding(pending, decider, ready, (parts, body))
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
