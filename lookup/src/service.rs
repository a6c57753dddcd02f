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
use pin_project_lite::pin_project;
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
    S: Service<Request<B>, Response = Response<RB>, Future: Send> + Clone + Send + 'static,
    T: Send + Sync + 'static,
    B: Send + 'static,
    RB: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = LookupFuture<S::Future, Result<S::Response, S::Error>>;

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
        let state = match (cached, key) {
            (Cached::Due(old), Some(key)) => {
                let layer = self.layer.clone();
                let load = Box::pin(async move {
                    let found = layer.rows.load(&key, old).await;
                    match layer.store(found, &mut parts) {
                        Ok(()) => ready.call(Request::from_parts(parts, body)).await,
                        Err(status) => Ok(unavailable(status, &parts)),
                    }
                });
                State::Loading { load }
            }
            (cached, _) => {
                if let Cached::Found(found) = cached {
                    // A row that could not be loaded is not in the cache.
                    let _ = self.layer.store(found, &mut parts);
                }
                State::Calling { call: ready.call(Request::from_parts(parts, body)) }
            }
        };
        LookupFuture { state }
    }
}

impl<T: Send + Sync + 'static> LookupLayer<T> {
    /// Stores the result of a lookup in the extensions of its request.
    ///
    /// # Errors
    ///
    /// Returns the status of the response if the request must not go on.
    fn store(&self, found: Found<T>, parts: &mut Parts) -> Result<(), StatusCode> {
        match found {
            Found::Row(row) => drop(parts.extensions.insert(row)),
            Found::Unknown => {}
            Found::Failed if self.rows.settings.denies_on_failure => {
                return Err(StatusCode::SERVICE_UNAVAILABLE);
            }
            Found::Failed => drop(parts.extensions.insert(LookupFailed)),
        }
        Ok(())
    }
}

/// Returns the response to a request whose row could not be loaded. For gRPC it has the status `UNAVAILABLE`.
fn unavailable<B: Default>(status: StatusCode, parts: &Parts) -> Response<B> {
    let content_type = parts.headers.get(CONTENT_TYPE);
    let is_grpc = content_type.is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"));
    let mut response = Response::new(B::default());
    if is_grpc {
        let content_type = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response.headers_mut().insert("grpc-status", HeaderValue::from_static("14"));
    } else {
        *response.status_mut() = status;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pin_project! {
    /// The future of [`LookupService`].
    pub struct LookupFuture<F, R> {
        #[pin]
        state: State<F, R>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, R> {
        /// The row was in the cache.
        Calling { #[pin] call: F },
        /// The row is loaded, and then the inner service is called.
        Loading { load: Pin<Box<dyn Future<Output = R> + Send>> },
    }
}

impl<F: Future> Future for LookupFuture<F, F::Output> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Calling { call } => call.poll(cx),
            StateProjection::Loading { load } => load.as_mut().poll(cx),
        }
    }
}

impl<F, R> fmt::Debug for LookupFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupFuture").finish_non_exhaustive()
    }
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
