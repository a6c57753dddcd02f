//! The future of a response: decide, call, settle.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    ResponseBody,
    decide::{Admission, After, Asked, Config},
    settlement::{Settled, Work},
};

pin_project! {
    /// The response, on its way.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, S::Future, S::Response, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, R, B> {
        Denied { denial: Option<Response<Bytes>> },
        // A remote store is asked.
        Deciding { question: Option<Box<Question<S, B>>> },
        Calling { #[pin] future: F, after: Option<After> },
        // The response is known, and charges are given back.
        Settling { response: Option<R>, work: Work<Settled> },
    }
}

/// Set aside, so that the future of a decision at hand is small. It holds the service that was ready
/// when the request came.
struct Question<S, B> {
    asked: Asked,
    config: Arc<Config>,
    service: S,
    request: Request<B>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn denied(denial: Response<Bytes>) -> Self {
        Self { state: State::Denied { denial: Some(denial) } }
    }

    pub(super) fn calling(future: S::Future, after: Option<After>) -> Self {
        Self { state: State::Calling { future, after } }
    }

    pub(super) fn deciding(
        asked: Asked,
        config: Arc<Config>,
        service: S,
        request: Request<B>,
    ) -> Self {
        let question = Question { asked, config, service, request };
        Self { state: State::Deciding { question: Some(Box::new(question)) } }
    }
}

impl<S, B, RB> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<RB>>,
{
    type Output = Result<Response<ResponseBody<RB>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Denied { denial } => {
                    let denial = denial.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(denial.map(ResponseBody::own)));
                }
                StateProjection::Deciding { question } => {
                    let pending = question.as_mut().expect("polled after it was ready");
                    let reply = ready!(Pin::new(&mut pending.asked.answer).poll(cx));
                    let question = *question.take().expect("it was there");
                    let Question { asked, config, mut service, request } = question;
                    let (mut parts, body) = request.into_parts();
                    match config.heard(asked, reply, &mut parts) {
                        Admission::Through(after) => {
                            let request = Request::from_parts(parts, body);
                            State::Calling { future: service.call(request), after }
                        }
                        Admission::Instead(denial) => State::Denied { denial: Some(denial) },
                    }
                }
                StateProjection::Calling { future, after } => {
                    let response = ready!(future.poll(cx))?;
                    match after.take() {
                        Some(After::Settle(settlement)) => {
                            let (head, body) = response.into_parts();
                            let work = settlement.at_head(&head);
                            let response = Some(Response::from_parts(head, body));
                            State::Settling { response, work }
                        }
                        Some(After::Stamp(stamp, decided)) => {
                            let settled = Settled { stamp, decided, at_end: None };
                            return Poll::Ready(Ok(settled.finish(response)));
                        }
                        None => {
                            let response = response.map(|body| ResponseBody::inner(body, None));
                            return Poll::Ready(Ok(response));
                        }
                    }
                }
                StateProjection::Settling { response, work } => {
                    let settled = ready!(work.as_mut().poll(cx));
                    let response = response.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(settled.finish(response)));
                }
            };
            state.set(next);
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Denied { .. } => "ResponseFuture(denied)",
            State::Deciding { .. } => "ResponseFuture(deciding)",
            State::Calling { .. } => "ResponseFuture(calling)",
            State::Settling { .. } => "ResponseFuture(settling)",
        })
    }
}
