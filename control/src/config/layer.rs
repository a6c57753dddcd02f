//! The layer that follows the configuration.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use plimsoll::layer::{RateLimit, ResponseBody, ResponseFuture};
use tower_layer::Layer;
use tower_service::Service;

use super::{current::Current, follower::Follower};

/// A layer with the rules of a [`Config`](super::Config). When the configuration changes, new requests get
/// the new rules. Requests in flight end under the rules with which they began.
#[derive(Clone)]
pub struct ConfigLayer {
    follower: Arc<Follower>,
    /// Keeps the task alive that watches the file.
    current: Arc<Current>,
}

impl ConfigLayer {
    pub(super) fn new(follower: Arc<Follower>, current: Arc<Current>) -> Self {
        Self { follower, current }
    }
}

impl<S> Layer<S> for ConfigLayer {
    type Service = ConfigService<S>;

    fn layer(&self, inner: S) -> ConfigService<S> {
        let service = self.follower.layer().layer(inner);
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
        self.layer.follower.layer().update(&mut self.service);
        self.service.call(request)
    }
}

impl fmt::Debug for ConfigLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigLayer")
            .field("layer", &self.follower.layer())
            .field("status", &self.current.status())
            .finish()
    }
}

impl<S: fmt::Debug> fmt::Debug for ConfigService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigService").field("service", &self.service).finish_non_exhaustive()
    }
}
