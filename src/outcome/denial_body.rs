//! The body of a response that the middleware makes itself.

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// The body of a denial: a document, or the body that a closure of the application has returned.
pub(crate) enum DenialBody {
    Document(Bytes),
    /// The body of a closure. The mutex makes it `Sync`, so that [`ResponseBody`](super::ResponseBody) is
    /// `Sync` if the inner body is. It is never locked for long.
    Boxed(Mutex<BoxedBody>),
}

type BoxedBody = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;

impl DenialBody {
    /// Wraps a body of any type.
    pub(crate) fn boxed<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        Self::Boxed(Mutex::new(Box::pin(UntilError { body, failed: false })))
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        match self {
            Self::Document(document) => {
                let document = mem::take(document);
                Poll::Ready((!document.is_empty()).then(|| Frame::data(document)))
            }
            Self::Boxed(body) => {
                let body = body.get_mut().unwrap_or_else(PoisonError::into_inner);
                let frame = ready!(body.as_mut().poll_frame(cx));
                Poll::Ready(frame.map(|frame| match frame {
                    Ok(frame) => frame,
                    Err(never) => match never {},
                }))
            }
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Self::Document(document) => document.is_empty(),
            Self::Boxed(body) => {
                body.lock().unwrap_or_else(PoisonError::into_inner).is_end_stream()
            }
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Document(document) => SizeHint::with_exact(document.len() as u64),
            Self::Boxed(body) => body.lock().unwrap_or_else(PoisonError::into_inner).size_hint(),
        }
    }
}

impl From<String> for DenialBody {
    fn from(document: String) -> Self {
        Self::Document(document.into())
    }
}

pin_project! {
    /// A body that ends when the wrapped body fails. The error is dropped, because it cannot be converted
    /// into the error type of the inner service's body.
    struct UntilError<B> {
        #[pin]
        body: B,
        failed: bool,
    }
}

impl<B: Body> Body for UntilError<B> {
    type Data = B::Data;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Infallible>>> {
        let this = self.project();
        if *this.failed {
            return Poll::Ready(None);
        }
        let frame = ready!(this.body.poll_frame(cx)).transpose();
        *this.failed = frame.is_err();
        Poll::Ready(frame.ok().flatten().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.failed || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
