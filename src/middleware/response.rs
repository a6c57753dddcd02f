//! The changes that a layer makes to the response of the inner service: rate limit headers, the decisions that
//! outer layers read, and refunds.

use std::{pin::Pin, sync::Arc};

use http::{Extensions, Response};
use http_body::Body;

use super::headers::{Headers, ResponseHeaders};
use crate::{
    decision::{Decision, Outcome},
    outcome::{BodySettlement, ResponseBody, Settlement},
};

/// The change of a response of the inner service. It is in a box, so that the future of a response is small, and
/// because a response without headers has none.
pub(super) struct ResponseChange {
    pub(super) headers: ResponseHeaders,
    /// The decision for the extensions of the response.
    pub(super) decisions: Option<Decisions>,
    /// The charges that depend on the response, and the headers that show them. Few requests have such charges.
    pub(super) settlement: Option<Box<(Settlement, Headers)>>,
    /// The guard of units in flight, and of what the end of the body settles.
    pub(super) at_end: Option<Box<BodySettlement>>,
}

/// A change that waits for refunds.
pub(super) type Settling = Pin<Box<dyn Future<Output = Box<ResponseChange>> + Send>>;

impl ResponseChange {
    /// Adjusts charges by the head of the response, which waits for their refunds.
    pub(super) fn settle<B: Body>(
        self,
        (settlement, headers): (Settlement, Headers),
        response: Response<B>,
    ) -> (Response<B>, Settling) {
        let Self { decisions, at_end, .. } = self;
        let (head, body) = response.into_parts();
        let settling = settlement.at_head(at_end, &head, &body.size_hint());
        let settling = Box::pin(async move {
            let (decision, at_end) = settling.await;
            let headers = headers.for_decision(&decision);
            let decisions = decisions.map(|decisions| decisions.with_decision(decision));
            Box::new(Self { headers, decisions, settlement: None, at_end })
        });
        (Response::from_parts(head, body), settling)
    }

    /// Changes a response. Its body holds units in flight until it has ended.
    pub(super) fn apply<B>(&mut self, mut response: Response<B>) -> Response<ResponseBody<B>> {
        self.headers.add_to(response.headers_mut());
        if let Some(decisions) = self.decisions.take() {
            decisions.add_to(response.extensions_mut());
        }
        let at_end = self.at_end.take();
        response.map(|body| ResponseBody::inner(body, at_end))
    }
}

/// The [`Decision`]s of the rate limit layers in front of a handler.
///
/// A layer with [`RateLimitLayer::visible`](crate::RateLimitLayer::visible) inserts it into the
/// extensions of the request, for handlers, and of the response, for outer layers such as a log.
/// With the feature `axum` it is an extractor.
///
/// It holds no decision if the request is exempt, if it is unlimited because the store cannot
/// answer, or if no layer in front of the handler is `visible`.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by, layer::Decisions};
///
/// async fn handler(decided: Decisions) -> String {
///     format!("{:?} units left", decided.remaining())
/// }
///
/// # fn main() -> Result<(), plimsoll::Error> {
/// let rule = Rule::new(Policy::new("api", Quota::per_minute(60))?, by::header("x-api-key"));
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule).visible();
/// let app: Router = Router::new().route("/", get(handler)).layer(layer);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Decisions(Option<Arc<Chain>>);

#[derive(Debug)]
struct Chain {
    decision: Decision<'static>,
    outer: Option<Decisions>,
}

impl Decisions {
    pub(super) fn new(decision: Decision<'static>, outer: Option<Self>) -> Self {
        Self(Some(Arc::new(Chain { decision, outer })))
    }

    /// Replaces the decision of the innermost layer, whose standings a refund has changed.
    pub(super) fn with_decision(self, decision: Decision<'static>) -> Self {
        Self::new(decision, self.outer().cloned())
    }

    /// Returns the [`Decision`]s of all layers, from the innermost outward.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision<'static>> {
        let chain = std::iter::successors(Some(self), |decided| decided.outer());
        chain.filter_map(|decided| decided.0.as_deref()).map(|chain| &chain.decision)
    }

    /// Returns the [`Outcome`] that decided, of all layers. If a layer has denied the request, this is the
    /// refused charge with the longest wait, and otherwise the charge with the fewest units left.
    #[must_use]
    pub fn binding(&self) -> Option<Outcome<'_>> {
        let denied = self.decisions().find(|decision| !decision.is_allowed());
        denied.map_or_else(|| self.tightest(), Decision::binding)
    }

    /// Returns the number of units left under the policy with the fewest, of all layers. It is
    /// `None` if nothing but shadow charges was decided.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        Some(self.tightest()?.standing().remaining)
    }

    fn tightest(&self) -> Option<Outcome<'_>> {
        let outcomes = self.decisions().filter_map(Decision::binding);
        outcomes.min_by_key(|outcome| outcome.standing().remaining)
    }

    fn outer(&self) -> Option<&Self> {
        self.0.as_ref()?.outer.as_ref()
    }

    /// Adds this to the extensions of a response, unless an inner layer has left a longer chain.
    pub(super) fn add_to(self, extensions: &mut Extensions) {
        let length = self.decisions().count();
        let inner = extensions.get::<Self>().map_or(0, |inner| inner.decisions().count());
        if length > inner {
            extensions.insert(self);
        }
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Decisions {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
