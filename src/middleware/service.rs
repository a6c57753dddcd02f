//! The service: from a request to its charges, and to the inner service or a denial.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{
    ResponseBody, ResponseFuture,
    decide::{Admission, Config, Progress},
};

/// A service whose requests are limited. Made by [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }

    /// The inner service that is ready; a clone, which may not be, takes its place.
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
{
    type Response = Response<ResponseBody<RB>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        match self.config.decide(&mut parts) {
            Progress::Decided(Admission::Through(after)) => {
                let request = Request::from_parts(parts, body);
                ResponseFuture::calling(self.inner.call(request), after)
            }
            Progress::Decided(Admission::Instead(denial)) => {
                // What readiness holds (a permit, a slot) is for somebody else now.
                drop(self.take_ready());
                ResponseFuture::denied(denial)
            }
            Progress::Asked(asked) => {
                let request = Request::from_parts(parts, body);
                let (config, ready) = (Arc::clone(&self.config), self.take_ready());
                ResponseFuture::deciding(asked, config, ready, request)
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
