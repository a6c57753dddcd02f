//! The service that looks up rows.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll},
};

use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
    request::Parts,
};
use tower_service::Service;

use crate::{
    LookupFailed, LookupLayer,
    rows::{Cached, Found},
};

/// A [`Service`] that looks up the row of each request. [`LookupLayer`] creates it.
pub struct LookupService<S, T> {
    pub(crate) inner: S,
    pub(crate) layer: LookupLayer<T>,
}

impl<S, T, B, RB> Service<Request<B>> for LookupService<S, T>
where
    S: Service<Request<B>, Response = Response<RB>, Future: Send + 'static>
        + Clone
        + Send
        + 'static,
    T: Send + Sync + 'static,
    B: Send + 'static,
    RB: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The ready service gets the request. Its clone, which may not be ready, replaces it.
        let clone = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, clone);
        let (mut parts, body) = request.into_parts();
        let rows = &self.layer.rows;
        let key = (self.layer.key)(&parts).filter(|key| key.len() <= rows.settings.max_key_len);
        let cached = key.as_deref().map_or(Cached::Found(Found::Unknown), |key| rows.get(key));
        let (key, old) = match (cached, key) {
            (Cached::Due(old), Some(key)) => (key, old),
            (cached, _) => {
                if let Cached::Found(found) = cached {
                    // A row that could not be loaded is not in the cache.
                    self.layer.store(found, &mut parts);
                }
                return Box::pin(ready.call(Request::from_parts(parts, body)));
            }
        };
        let layer = self.layer.clone();
        Box::pin(async move {
            let found = layer.rows.load(&key, old).await;
            if layer.store(found, &mut parts) {
                ready.call(Request::from_parts(parts, body)).await
            } else {
                Ok(unavailable(&parts))
            }
        })
    }
}

impl<T: Send + Sync + 'static> LookupLayer<T> {
    /// Stores the result of a lookup in the extensions of its request. Returns false if the request must not go on.
    fn store(&self, found: Found<T>, parts: &mut Parts) -> bool {
        match found {
            Found::Row(row) => drop(parts.extensions.insert(row)),
            Found::Unknown => {}
            Found::Failed if self.rows.settings.denies_on_failure => return false,
            Found::Failed => drop(parts.extensions.insert(LookupFailed)),
        }
        true
    }
}

/// Returns the response to a request whose row could not be loaded. For gRPC it has the status `UNAVAILABLE`.
fn unavailable<B: Default>(parts: &Parts) -> Response<B> {
    let content_type = parts.headers.get(CONTENT_TYPE);
    let is_grpc = content_type.is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"));
    let mut response = Response::new(B::default());
    if is_grpc {
        let content_type = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response.headers_mut().insert("grpc-status", HeaderValue::from_static("14"));
    } else {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

impl<S: Clone, T> Clone for LookupService<S, T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S: fmt::Debug, T> fmt::Debug for LookupService<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupService").field("inner", &self.inner).finish_non_exhaustive()
    }
}
