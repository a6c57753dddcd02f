//! The layer that follows the configuration.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use arc_swap::ArcSwap;
use http::{Request, Response};
use http_body::Body;
use plimsoll::{Limiter, RateLimit, RateLimitLayer, ResponseBody, ResponseFuture};
use tower_layer::Layer;
use tower_service::Service;

use super::{config::Shared, rules::Rules};

/// A layer with the rules of a [`Config`](super::Config). When the configuration changes, new requests get
/// the new rules. Requests in flight end under the rules with which they began.
#[derive(Clone)]
pub struct ConfigLayer {
    follower: Arc<Follower>,
    /// Keeps the task alive that watches the file.
    shared: Arc<Shared>,
}

/// A change of the layer by the program.
pub(super) type Change = dyn Fn(RateLimitLayer) -> RateLimitLayer + Send + Sync;

/// The rules in force over one limiter.
pub(super) struct Follower {
    limiter: Limiter,
    change: Option<Box<Change>>,
    layer: ArcSwap<RateLimitLayer>,
}

impl Follower {
    /// Creates a follower, or returns `None` without rules.
    pub(super) fn new(
        limiter: Limiter,
        change: Option<Box<Change>>,
        rules: &Rules,
    ) -> Option<Self> {
        let layer = ArcSwap::from_pointee(make(&limiter, change.as_deref(), rules)?);
        Some(Self { limiter, change, layer })
    }

    /// Puts other rules in force. Without rules, it does nothing.
    pub(super) fn follow(&self, rules: &Rules) {
        if let Some(layer) = make(&self.limiter, self.change.as_deref(), rules) {
            self.layer.store(Arc::new(layer));
        }
    }
}

fn make(limiter: &Limiter, change: Option<&Change>, rules: &Rules) -> Option<RateLimitLayer> {
    let layer = rules.layer(limiter)?;
    Some(match change {
        Some(change) => change(layer),
        None => layer,
    })
}

impl ConfigLayer {
    pub(super) fn new(follower: Arc<Follower>, shared: Arc<Shared>) -> Self {
        Self { follower, shared }
    }
}

impl<S> Layer<S> for ConfigLayer {
    type Service = ConfigService<S>;

    fn layer(&self, inner: S) -> ConfigService<S> {
        let service = self.follower.layer.load().layer(inner);
        ConfigService { service, layer: self.clone() }
    }
}

/// A [`Service`] whose requests are limited by the rules of a configuration. [`ConfigLayer`] creates it.
#[derive(Clone)]
pub struct ConfigService<S> {
    service: RateLimit<S>,
    layer: ConfigLayer,
}

impl<S, B, RB> Service<Request<B>> for ConfigService<S>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    RB: Body,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Service::<Request<B>>::poll_ready(&mut self.service, cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.layer.follower.layer.load().update(&mut self.service);
        self.service.call(request)
    }
}

impl fmt::Debug for ConfigLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigLayer")
            .field("layer", &self.follower.layer.load())
            .field("status", &self.shared.status())
            .finish()
    }
}

impl<S: fmt::Debug> fmt::Debug for ConfigService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigService").field("service", &self.service).finish_non_exhaustive()
    }
}
