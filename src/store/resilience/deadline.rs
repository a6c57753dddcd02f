//! No check waits longer than this for its store.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::{
    error::{Effect, Error, ErrorKind},
    store::{Answer, Request, Store, departure, departure::Late},
    telemetry,
};

/// A store that answers in time, or fails.
#[derive(Debug)]
pub(super) struct Deadline {
    inner: Box<dyn Store>,
    deadline: Duration,
}

impl Deadline {
    pub(super) fn new(inner: Box<dyn Store>, deadline: Duration) -> Self {
        Self { inner, deadline }
    }
}

impl Store for Deadline {
    fn call(&self, request: Request<'_>) -> Answer {
        let deadline = self.deadline;
        match self.inner.call(request).now() {
            Ok(reply) => Answer::ready(reply),
            Err(coming) => Answer::pending(async move {
                // Without tokio there is no timer; the store's own timeouts are then all there is.
                if Handle::try_current().is_err() {
                    return coming.await;
                }
                departure::within(deadline, coming).await.unwrap_or_else(|late| {
                    telemetry::deadline_missed();
                    Err(missed(deadline, &late))
                })
            }),
        }
    }
}

fn missed(deadline: Duration, late: &Late) -> Error {
    let message = format!("the store has not answered within {deadline:?}");
    if late.unsent {
        let message = format!("{message}: there was no connection; nothing was charged");
        return Error::new(ErrorKind::Unavailable, message);
    }
    Error::new(ErrorKind::Unavailable, message).with_effect(Effect::Unknown)
}
