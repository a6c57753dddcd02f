//! The paced client.

use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{PaceError, PaceLayer};
use crate::{
    decision::Decision,
    middleware::{ResponseBody, settlement, settlement::Hooks},
    policy::{Charge, Charges, OnFailure},
    telemetry,
};

/// A client whose calls are paced. Made by [`PaceLayer`].
#[derive(Clone)]
pub struct Pace<S> {
    inner: S,
    layer: Arc<PaceLayer>,
}

impl<S> Pace<S> {
    pub(super) fn new(inner: S, layer: PaceLayer) -> Self {
        Self { inner, layer: Arc::new(layer) }
    }
}

type Coming<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<S, B, RB> Service<Request<B>> for Pace<S>
where
    S: Service<Request<B>, Response = Response<RB>, Future: Send> + Clone + Send + 'static,
    B: Send + 'static,
    RB: Send,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = PaceError<S::Error>;
    type Future = Coming<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(PaceError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that is ready makes the call; a clone, which may not be, takes its place.
        let clone = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, clone);
        let layer = Arc::clone(&self.layer);
        let (parts, body) = request.into_parts();
        let (charges, hooks) = settlement::charges(&self.layer.rules, &parts);
        let charges: Charges<'static> = charges.into_owned();
        Box::pin(async move {
            let decision = layer.admit::<S::Error>(charges).await?;
            let response = ready.call(Request::from_parts(parts, body)).await;
            let (head, body) = response.map_err(PaceError::Inner)?.into_parts();
            Ok(settle(&layer, decision, hooks, head, body).await)
        })
    }
}

impl PaceLayer {
    /// The decision that admits a call; `None` if nothing is charged, or the store fails and the
    /// rules let calls through then.
    async fn admit<E>(
        &self,
        charges: Charges<'static>,
    ) -> Result<Option<Decision<'static>>, PaceError<E>> {
        if charges.is_empty() {
            return Ok(None);
        }
        let strict =
            |charge: &Charge<'_>| !charge.is_shadow() && charge.on_failure() == OnFailure::Deny;
        let strict = charges.iter().any(strict);
        let decided = match self.within.is_zero() {
            true => self.limiter.check(charges).await,
            false => self.limiter.until_ready(charges, self.within).await,
        };
        match decided {
            Ok(Decision::Denied(denied)) => Err(PaceError::Denied {
                policy: denied.binding().map_or("", |binding| binding.policy().name()).to_owned(),
                retry_after: denied.retry_after(),
            }),
            Ok(allowed) => Ok(Some(allowed)),
            Err(error) => {
                let admitted = error.is_unavailable() && !strict;
                telemetry::store_failed(&error, admitted);
                if admitted { Ok(None) } else { Err(PaceError::Limiter(error)) }
            }
        }
    }
}

async fn settle<B>(
    layer: &PaceLayer,
    decision: Option<Decision<'static>>,
    hooks: Hooks,
    head: http::response::Parts,
    body: B,
) -> Response<ResponseBody<B>> {
    let at_end = match decision {
        Some(decision) if !hooks.is_empty() => {
            let settlement = settlement::Settlement::unseen(layer.limiter.clone(), decision, hooks);
            settlement.at_head(&head).await.at_end
        }
        _ => None,
    };
    Response::from_parts(head, ResponseBody::inner(body, at_end))
}

impl<S: fmt::Debug> fmt::Debug for Pace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("inner", &self.inner).finish_non_exhaustive()
    }
}
