//! The layer: what is charged, and how the answers look.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, request::Parts};
use tower_layer::Layer;

use super::{
    decide::{Answers, Config},
    headers::Headers,
    service::RateLimit,
};
use crate::{
    decision::{Decision, Denied},
    limiter::Limiter,
    policy::Charges,
    rule::Rule,
};

/// Limits the requests of a service: each is charged under one or several [`Rule`]s, and is let
/// through, or answered with a denial.
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::in_memory();
/// let per_client = Policy::new("per-client", Quota::per_minute(60))?;
/// let overall = Policy::new("overall", Quota::per_second(500))?;
///
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(
///     RateLimitLayer::new(limiter, Rule::new(per_client, by::header("x-api-key")))
///         .and(Rule::new(overall, |_| "everybody"))
///         .exempt(|parts| parts.uri.path() == "/health"),
/// );
/// # Ok(())
/// # }
/// ```
///
/// The rules of one layer are decided together: all are charged or none is. Stacked layers are
/// checks of their own, from the outermost inward; what an outer one has charged stays charged when
/// an inner one denies. Their `RateLimit` headers add up.
///
/// `Router::layer` also covers the fallback, so that requests to no route spend units;
/// `Router::route_layer` does not. A denial is a response, never an error: no error handling is
/// needed around this layer.
///
/// | outcome | status | gRPC | |
/// |---|---|---|---|
/// | not enough units now | 429 | `RESOURCE_EXHAUSTED` | `Retry-After`, problem type `quota-exceeded` |
/// | cost over capacity | 403 | `FAILED_PRECONDITION` | no `Retry-After`: waiting does not help |
/// | the store cannot answer, and a rule says [`OnFailure::Deny`](crate::OnFailure::Deny) | 503 | `UNAVAILABLE` | `Retry-After`, problem type `temporary-reduced-capacity` |
///
/// Requests with the content type of gRPC or gRPC-Web get the gRPC status, in a response without a
/// body, with `RetryInfo` and `QuotaFailure` as details. No feature is needed for that.
#[derive(Clone)]
pub struct RateLimitLayer(Arc<Config>);

impl RateLimitLayer {
    /// A layer with one rule.
    #[must_use]
    pub fn new(limiter: Limiter, rule: Rule) -> Self {
        Self(Arc::new(Config {
            limiter,
            rules: vec![rule],
            exempt: Vec::new(),
            headers: Headers::default(),
            jitter: Duration::ZERO,
            answers: Answers::default(),
            visible: false,
            on_decision: None,
        }))
    }

    /// Adds a rule, decided in the same atomic step.
    ///
    /// # Panics
    ///
    /// If there are already [`Charges::MAX`] rules.
    #[must_use]
    pub fn and(self, rule: Rule) -> Self {
        self.with(|config| {
            assert!(config.rules.len() < Charges::MAX, "a layer has at most 32 rules");
            config.rules.push(rule);
        })
    }

    /// Lets matching requests through without a charge and without headers.
    #[must_use]
    pub fn exempt<F>(self, exempt: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.with(|config| config.exempt.push(Arc::new(exempt)))
    }

    /// Which headers responses carry.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        self.with(|config| config.headers = headers)
    }

    /// Adds up to this much, at random, to the wait that a client is told, so that not all come
    /// back at once. It never points earlier than the truth.
    ///
    /// `Retry-After` counts in whole seconds: there a part of a second is taken for a whole one.
    #[must_use]
    pub fn jitter(self, most: Duration) -> Self {
        self.with(|config| config.jitter = most)
    }

    /// Makes every rule so far a trial: decided, but nobody is denied and no header shown. See
    /// [`on_decision`](Self::on_decision).
    #[must_use]
    pub fn shadow(self) -> Self {
        self.with(|config| {
            config.rules = config.rules.drain(..).map(Rule::shadow).collect();
        })
    }

    /// Shows each decision to handlers and to outer layers: as [`Decided`](crate::Decided), in the
    /// extensions of the request and of the response. It costs a few allocations a request.
    #[must_use]
    pub fn visible(self) -> Self {
        self.with(|config| config.visible = true)
    }

    /// Denies in plain text instead of problem documents.
    #[must_use]
    pub fn plain_text(self) -> Self {
        self.with(|config| config.answers = Answers::Text)
    }

    /// Responds to denials, but not to gRPC requests, which are always answered with a gRPC
    /// status, nor if the store cannot answer. `Retry-After` and the rate limit headers are added to
    /// the response.
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// # use tollgate::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
    /// # let rule = Rule::new(Policy::new("p", Quota::per_minute(60))?, by::header("x-api-key"));
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), rule).on_denied(|denied, _parts| {
    ///     let mut response = Response::new("slow down".into());
    ///     *response.status_mut() = match denied.is_over_capacity() {
    ///         true => StatusCode::FORBIDDEN,
    ///         false => StatusCode::TOO_MANY_REQUESTS,
    ///     };
    ///     response
    /// });
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn on_denied<F>(self, respond: F) -> Self
    where
        F: Fn(&Denied<'_>, &Parts) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.with(|config| config.answers = Answers::Own(Arc::new(respond)))
    }

    /// Shows every decision to `watch`, trials included.
    #[must_use]
    pub fn on_decision<F>(self, watch: F) -> Self
    where
        F: Fn(&Decision<'_>, &Parts) + Send + Sync + 'static,
    {
        self.with(|config| config.on_decision = Some(Arc::new(watch)))
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.0))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("rules", &self.0.rules)
            .field("headers", &self.0.headers)
            .finish_non_exhaustive()
    }
}
