//! The body of a response: the inner service's, or a small document of this middleware.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::settlement::AtEnd;

pin_project! {
    /// The body of a response: the inner service's, or the document of a denial.
    ///
    /// It is a body like `B` as long as its data can be made from [`Bytes`].
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Own { document: Option<Bytes> },
        // Few bodies settle charges: the others are little larger than what they hold.
        Inner { #[pin] body: B, at_end: Option<Box<AtEnd>> },
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn own(document: Bytes) -> Self {
        Self { kind: Kind::Own { document: Some(document) } }
    }

    /// The inner body; `at_end` does its work when the body has ended or is dropped. A server drops
    /// a body without asking for its end when it knows the length, or when the client has gone.
    pub(crate) fn inner(body: B, at_end: Option<Box<AtEnd>>) -> Self {
        Self { kind: Kind::Inner { body, at_end } }
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
            KindProjection::Own { document } => {
                let document = document.take().filter(|document| !document.is_empty());
                Poll::Ready(document.map(|document| Ok(Frame::data(document.into()))))
            }
            KindProjection::Inner { body, at_end } => {
                let frame = ready!(body.poll_frame(cx));
                match (&frame, at_end.as_mut()) {
                    (Some(Ok(frame)), Some(at_end)) => {
                        at_end.count(frame.data_ref().map_or(0, Buf::remaining));
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
            Kind::Own { document } => document.as_ref().is_none_or(Bytes::is_empty),
            Kind::Inner { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Own { document } => {
                SizeHint::with_exact(document.as_ref().map_or(0, |document| document.len() as u64))
            }
            Kind::Inner { body, .. } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Own { .. } => "ResponseBody(own)",
            Kind::Inner { .. } => "ResponseBody(inner)",
        })
    }
}
