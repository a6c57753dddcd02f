//! The service that paces calls.

use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, response::Parts};
use http_body::{Body, SizeHint};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    PaceError, PaceLayer,
    upstream::{CallId, NotReady, Pause},
};
use crate::{
    decision::Decision,
    error::{Error, ErrorKind},
    limiter::Limiter,
    outcome::{BodySettlement, ResponseBody, Settlement},
    policy::{Charges, OnFailure},
    rule::{MissingPeer, RequestCharges, ResponseHooks},
    telemetry,
};

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
        let (parts, body) = request.into_parts();
        Box::pin(async move {
            let rules = layer.rules.applicable(&parts);
            let request = RequestCharges::new(rules, &parts).map_err(no_peer)?;
            let (charges, hooks) = (request.charges.into_owned(), request.hooks);
            let call = CallId::new(&charges);
            let decision = decide::<S::Error>(&layer, charges, &call).await?;
            let permit = decision.as_ref().and_then(|decision| layer.limiter.permit(decision));
            let response = ready.call(Request::from_parts(parts, body)).await;
            let (head, body) = response.map_err(PaceError::Inner)?.into_parts();
            layer.pauses.answered(&call, Pause::of(&head), layer.max_pause);
            let at_end = settle(&layer.limiter, decision, hooks, &head, body.size_hint());
            let at_end = BodySettlement::holding(at_end, permit);
            Ok(Response::from_parts(head, ResponseBody::inner(body, at_end)))
        })
    }
}

/// Returns the decision that allows a call.
///
/// It is `None` if the call has no charges, or if the store cannot answer and no rule says
/// [`OnFailure::Deny`].
///
/// # Errors
///
/// Returns an error if the call must not be made.
async fn decide<E>(
    layer: &PaceLayer,
    charges: Charges<'static>,
    call: &CallId,
) -> Result<Option<Decision<'static>>, PaceError<E>> {
    if charges.is_empty() {
        return Ok(None);
    }
    let waits = !layer.max_wait.is_zero();
    let charges = if waits { charges.or_on_failure(OnFailure::Deny) } else { charges };
    let failure_policy = charges.failure_policy();
    let first_policy =
        charges.iter().find(|charge| charge.is_live()).map(|charge| charge.policy().clone());
    let gate = |deadline| layer.pauses.wait(call, deadline);
    let decision = if waits {
        layer.limiter.until_ready_after(charges, layer.max_wait, gate).await
    } else {
        match gate(Instant::now()).await {
            Ok(()) => layer.limiter.check(charges).await.map_err(NotReady::Error),
            Err(paused) => Err(paused),
        }
    };
    match decision {
        Ok(Decision::Denied(denied)) => Err(PaceError::Denied {
            policy: denied.binding().map_or("", |binding| binding.policy().name()).to_owned(),
            retry_after: denied.retry_after(),
            over_capacity: denied.is_over_capacity(),
            by_upstream: false,
        }),
        Ok(allowed) => Ok(Some(allowed)),
        Err(NotReady::Paused(wait)) => Err(PaceError::Denied {
            policy: first_policy.as_ref().map_or("", |policy| policy.name()).to_owned(),
            retry_after: Some(wait),
            over_capacity: false,
            by_upstream: true,
        }),
        Err(NotReady::Error(error)) => {
            let admitted = failure_policy.admits(&error);
            telemetry::check_failed(&error, admitted);
            if admitted { Ok(None) } else { Err(PaceError::Limiter(error)) }
        }
    }
}

/// Adjusts the charges of a call by its response. Returns those that the end of the body settles.
fn settle(
    limiter: &Limiter,
    decision: Option<Decision<'static>>,
    hooks: ResponseHooks,
    head: &Parts,
    size: SizeHint,
) -> Option<Box<BodySettlement>> {
    match decision {
        Some(decision) if !hooks.is_empty() => {
            let settlement = Settlement { limiter: limiter.clone(), decision, hooks };
            settlement.at_head(head, &size)
        }
        _ => None,
    }
}

/// Returns the error of a call whose rule charges the address of a peer, which no outgoing call has.
fn no_peer<E>(_: MissingPeer) -> PaceError<E> {
    PaceError::Limiter(Error::new(ErrorKind::Invalid, MissingPeer::TEXT))
}

impl<S: fmt::Debug> fmt::Debug for Pace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("inner", &self.inner).finish_non_exhaustive()
    }
}
