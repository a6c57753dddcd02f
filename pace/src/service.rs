//! The service that paces calls.

use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use plimsoll::{
    Decision, OnFailure,
    layer::{AdmittedRequest, ResponseBody},
    rule::RequestCharges,
};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use crate::{PaceError, PaceLayer, headers::Pause, pauses::CallId};

/// A [`Service`] around a client, which paces its calls. [`PaceLayer`] creates it.
#[derive(Clone)]
pub struct Pace<S> {
    inner: S,
    layer: Arc<PaceLayer>,
}

impl<S> Layer<S> for PaceLayer {
    type Service = Pace<S>;

    fn layer(&self, inner: S) -> Pace<S> {
        Pace { inner, layer: Arc::new(self.clone()) }
    }
}

impl<S, B, RB> Service<Request<B>> for Pace<S>
where
    S: Service<Request<B>, Response = Response<RB>, Future: Send> + Clone + Send + 'static,
    B: Send + 'static,
    RB: Body + Send,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = PaceError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(PaceError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The ready service makes the call. Its clone, which may not be ready, replaces it.
        let clone = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, clone);
        let layer = Arc::clone(&self.layer);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let charges = layer.rules.charges(&parts)?;
            let call = CallId::new(&charges.charges);
            let admitted = layer.admit(charges, &call).await?;
            let response = ready.call(Request::from_parts(parts, body)).await;
            let response = response.map_err(PaceError::Inner)?;
            let pause = Pause::of(response.status(), response.headers());
            layer.pauses.answered(&call, pause, layer.max_pause);
            Ok(admitted.settle(response).await)
        })
    }
}

impl PaceLayer {
    /// Charges a call. A call without charges is admitted.
    ///
    /// # Errors
    ///
    /// Returns an error if the call must not be made.
    async fn admit<E>(
        &self,
        mut request: RequestCharges<'_>,
        call: &CallId,
    ) -> Result<AdmittedRequest, PaceError<E>> {
        if request.charges.is_empty() {
            return Ok(AdmittedRequest::default());
        }
        let decision = if self.max_wait.is_zero() {
            self.pause_of(call, Instant::now())?;
            self.limiter.check(request.charges.clone()).await.map_err(PaceError::Limiter)
        } else {
            request.charges = mem::take(&mut request.charges).or_on_failure(OnFailure::Deny);
            let charges = request.charges.clone();
            self.limiter
                .until_ready_after(charges, self.max_wait, |until| self.pause_of(call, until))
                .await
        };
        let checked = match decision {
            Ok(Decision::Allowed(allowed)) => Ok(allowed),
            Ok(Decision::Denied(denied)) => {
                return Err(PaceError::Denied {
                    policy: denied
                        .binding()
                        .map_or("", |it| it.charge().policy().name())
                        .to_owned(),
                    retry_after: denied.retry_after(),
                    over_capacity: denied.is_over_capacity(),
                    by_upstream: false,
                });
            }
            Err(PaceError::Limiter(error)) => Err(error),
            Err(paused) => return Err(paused),
        };
        Ok(AdmittedRequest::new(&self.limiter, request, checked)?)
    }

    /// Returns the end of the pause of these calls, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if the pause ends after `deadline`.
    fn pause_of<E>(
        &self,
        call: &CallId,
        deadline: Instant,
    ) -> Result<Option<Instant>, PaceError<E>> {
        match self.pauses.end(call) {
            Some(end) if end > deadline => Err(PaceError::Denied {
                policy: call.policy(),
                retry_after: Some(end.saturating_duration_since(Instant::now())),
                over_capacity: false,
                by_upstream: true,
            }),
            end => Ok(end),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Pace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("inner", &self.inner).finish_non_exhaustive()
    }
}
