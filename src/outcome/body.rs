//! The response body of the middleware and of [`AdmittedRequest`](super::AdmittedRequest).

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use pin_project_lite::pin_project;

use super::settle::BodySettlement;
use crate::sync::Mutex;

pin_project! {
    /// The body of a response of [`RateLimit`](crate::layer::RateLimit) or
    /// [`AdmittedRequest`](crate::layer::AdmittedRequest): the body of the inner service, or of a denial.
    ///
    /// It implements [`Body`] if `B` does and if the data of `B` can be made from [`Bytes`].
    pub struct ResponseBody<B> {
        #[pin]
        kind: BodyKind<B>,
    }
}

pin_project! {
    #[project = BodyKindProjection]
    enum BodyKind<B> {
        Denial { body: DenialBody },
        // The settlement is boxed because few responses have one.
        Inner { #[pin] body: B, at_end: Option<Box<BodySettlement>> },
    }
}

impl<B> ResponseBody<B> {
    /// Wraps the body of a denial.
    pub(crate) fn denial(body: DenialBody) -> Self {
        Self { kind: BodyKind::Denial { body } }
    }

    /// Wraps the body of the inner service.
    ///
    /// `at_end` settles its charges when it is dropped, which happens when the body has ended or is
    /// dropped. A server drops a body before its end if it knows the length, or if the client has
    /// disconnected.
    pub(crate) fn inner(body: B, at_end: Option<Box<BodySettlement>>) -> Self {
        Self { kind: BodyKind::Inner { body, at_end } }
    }
}

impl<B> Default for ResponseBody<B> {
    /// Creates an empty body, for layers outside of this one that answer by themselves.
    fn default() -> Self {
        Self::denial(DenialBody::Document(Bytes::new()))
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            BodyKindProjection::Denial { body } => {
                let frame = ready!(body.poll_frame(cx));
                Poll::Ready(frame.map(|frame| Ok(frame.map_data(Into::into))))
            }
            BodyKindProjection::Inner { body, at_end } => {
                let frame = ready!(body.poll_frame(cx));
                match (&frame, at_end.as_mut()) {
                    (Some(Ok(frame)), Some(at_end)) => {
                        at_end.add_bytes(frame.data_ref().map_or(0, Buf::remaining));
                    }
                    (None, _) => *at_end = None,
                    _ => {}
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Denial { body } => body.is_end_stream(),
            BodyKind::Inner { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Denial { body } => body.size_hint(),
            BodyKind::Inner { body, .. } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

/// The body of a denial: a document, or the body that a closure of the application has returned.
pub(crate) enum DenialBody {
    Document(Bytes),
    /// The body of a closure. The mutex makes it `Sync`, so that [`ResponseBody`] is
    /// `Sync` if the inner body is. It is never locked for long.
    Boxed(Mutex<UnsyncBoxBody<Bytes, ()>>),
}

impl DenialBody {
    /// Wraps a body of any type. It ends when the wrapped body fails, because the error cannot be converted into the
    /// error type of the inner service's body.
    pub(crate) fn boxed<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        Self::Boxed(Mutex::new(body.map_err(drop).boxed_unsync()))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        match self {
            Self::Document(document) => {
                let document = mem::take(document);
                Poll::Ready((!document.is_empty()).then(|| Frame::data(document)))
            }
            Self::Boxed(body) => {
                let frame = ready!(Pin::new(body.get_mut()).poll_frame(cx));
                Poll::Ready(frame.and_then(Result::ok))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Document(document) => document.is_empty(),
            Self::Boxed(body) => body.lock().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Document(document) => SizeHint::with_exact(document.len() as u64),
            Self::Boxed(body) => body.lock().size_hint(),
        }
    }
}

impl From<String> for DenialBody {
    fn from(document: String) -> Self {
        Self::Document(document.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected sizes are for a body that can hold only the document of a denial.
    #[test]
    fn a_denial_of_the_application_does_not_enlarge_the_body() {
        let document = size_of::<Option<Bytes>>() + size_of::<usize>();
        assert_eq!(size_of::<ResponseBody<Box<dyn Body<Data = Bytes, Error = ()>>>>(), document);
        assert_eq!(size_of::<ResponseBody<[u64; 8]>>(), size_of::<[u64; 10]>());
    }

    #[test]
    fn the_body_is_send_and_sync_if_the_inner_body_is() {
        fn requires<B: Send + Sync>() {}
        requires::<ResponseBody<Bytes>>();
    }
}
