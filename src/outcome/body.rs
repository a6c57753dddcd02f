//! The response body of the middleware and of the client.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::body_settlement::BodySettlement;

pin_project! {
    /// The body of a response of [`RateLimit`](crate::RateLimit) or [`Pace`](crate::client::Pace):
    /// the body of the inner service, or the document of a denial.
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
        Document { document: Option<Bytes> },
        // The settlement is boxed because few responses have one.
        Inner { #[pin] body: B, at_end: Option<Box<BodySettlement>> },
    }
}

impl<B> ResponseBody<B> {
    /// Creates a body of one frame.
    pub(crate) fn document(document: Bytes) -> Self {
        Self { kind: BodyKind::Document { document: Some(document) } }
    }

    /// Wraps the body of the inner service.
    ///
    /// `at_end` settles its charges when it is dropped, which happens when the body has ended or is
    /// dropped. A server drops a body before its end if it knows the length, or if the client has
    /// disconnected.
    #[inline]
    pub(crate) fn inner(body: B, at_end: Option<Box<BodySettlement>>) -> Self {
        Self { kind: BodyKind::Inner { body, at_end } }
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
            BodyKindProjection::Document { document } => {
                let document = document.take().filter(|document| !document.is_empty());
                Poll::Ready(document.map(|document| Ok(Frame::data(document.into()))))
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
            BodyKind::Document { document } => document.as_ref().is_none_or(Bytes::is_empty),
            BodyKind::Inner { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Document { document } => {
                SizeHint::with_exact(document.as_ref().map_or(0, |document| document.len() as u64))
            }
            BodyKind::Inner { body, .. } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BodyKind::Document { .. } => "ResponseBody(document)",
            BodyKind::Inner { .. } => "ResponseBody(inner)",
        })
    }
}
