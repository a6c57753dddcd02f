//! The stream of recent denials, as server-sent events.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures_core::Stream;
use http::StatusCode;
use tokio::sync::mpsc::Receiver;

use crate::admin::{
    config::Shared,
    denials::{Denial, MAX_LISTENERS},
    problem::Problem,
};

/// Returns the stream of denials, with the recent ones first.
pub(in crate::admin) async fn denials(State(shared): State<Shared>) -> Result<Response, Problem> {
    let denials = shared.activity.denials().listen().ok_or_else(|| {
        let detail = "No data because too many pages watch the denials of this process";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "Too many streams", detail);
        problem.allowed(format!("{MAX_LISTENERS} streams at a time"))
    })?;
    Ok(Sse::new(Events(denials)).keep_alive(KeepAlive::default()).into_response())
}

struct Events(Receiver<Denial>);

impl Stream for Events {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|denial| {
            let denial = serde_json::to_string(&denial?).ok()?;
            Some(Ok(Event::default().event("denial").data(denial)))
        })
    }
}
